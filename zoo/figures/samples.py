"""Input of a trained model for its figure: an excerpt, and sequences of some lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from zoo.data.source import DataSource
from zoo.data.text.tokenizer import TextTokenizer
from zoo.errors import InputError
from zoo.evaluation.load import load_runs
from zoo.evaluation.protocols.protocol import end_of_encoding
from zoo.tasks.task import Task

TIMES = (1, 2, 4)
"""Multiples of the trained length that are drawn by default."""
LONGEST = 4096
"""Tokens of a sequence by default."""
PAIRS, FEWEST, MOST = 2**23, 4, 48
"""Pairs of tokens of all sequences of a length together, and bounds of the number of sequences."""
EXCERPT, LABEL = 12, 9
"""Tokens of the excerpt, and characters of the name of one."""

Batch = dict[str, Tensor]
"""`tokens` [W,T], and `targets` [W,T] or `answer` [W] where something is predicted."""


@dataclass(frozen=True)
class Samples:
    """The input of one model.

    Attributes:
        excerpt: [T] token ids, at most `EXCERPT`.
        names: of its tokens.
        batches: sequences by their length, in tokens.
        notes: the reason for each length that is not drawn.
    """

    excerpt: Tensor
    names: list[str]
    batches: dict[int, Batch]
    notes: list[str]


def open_samples(
    path: Path, lengths: Sequence[int] | None = None, sets: Sequence[str] = ()
) -> tuple[Task, Samples]:
    """A trained model and its validation data.

    Args:
        path: a run folder, a checkpoint or an exported folder.
        lengths: in tokens; by default the trained one, twice and four times that.
        sets: `key=value` changes to keys that may change after training.

    Raises:
        InputError: nothing usable at `path`, or no data.
    """
    ((run, source),) = load_runs([path], sets=sets)
    task, batches, notes = run.task, {}, []
    trained = task.recipe.data.sequence_length
    for length in sorted(set(lengths or [min(LONGEST, times * trained) for times in TIMES])):
        try:
            if note := end_of_encoding(task, length):
                raise InputError(note)
            batches[length] = _batch(source, length, max(FEWEST, min(MOST, PAIRS // length**2)))
        except InputError as error:
            notes.append(f"length {length} is not drawn: {error.problems[0]}")
    if not batches:
        raise InputError(f"nothing to draw: {'; '.join(notes)}; give another --lengths")
    excerpt = batches[min(batches)]["tokens"][0, :EXCERPT]
    names = token_names(source.tokenizer, excerpt) if source.tokenizer else [*map(str, excerpt.tolist())]
    return task, Samples(excerpt, names, batches, notes)


def _batch(source: DataSource, length: int, count: int) -> Batch:
    """Sequences of the validation data; of a text spread evenly over it."""
    if source.kind != "text":
        return source.examples("valid", length, count).batch(range(count))
    windows = source.dataset("valid", length=length)
    if not len(windows):
        raise InputError("the validation text is too short")
    return windows.batch(np.linspace(0, len(windows) - 1, min(count, len(windows))).round().astype(int))


def token_names(tokenizer: TextTokenizer, tokens: Tensor) -> list[str]:
    """Tokens as text without spaces around; white space alone is written out."""
    names = []
    for token in tokens.tolist():
        text = tokenizer.decode([token])
        name = repr((text.strip(" ") or "␣" * len(text)).replace("\n", "↵").replace("\t", "⇥"))[1:-1]
        names.append(name if len(name) <= LABEL else f"{name[: LABEL - 1]}…")
    return names
