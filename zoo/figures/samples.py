"""Input of a trained model for its figure: an excerpt, and sequences of some lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from zoo.data.source import DataSource
from zoo.data.text.tokenizer import TextTokenizer, open_tokenizer
from zoo.errors import InputError
from zoo.evaluation.load import load_runs
from zoo.evaluation.protocols.protocol import end_of_encoding
from zoo.runs.load import LoadedRun, load_run
from zoo.tasks.task import Task

TIMES = (1, 2, 4)
"""Of the trained length: the lengths that are drawn by default."""
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
        notes: a sentence for each length that is not drawn.
    """

    excerpt: Tensor
    names: list[str]
    batches: dict[int, Batch]
    notes: list[str] = field(default_factory=list)


def open_samples(
    path: Path, text: str | None = None, lengths: Sequence[int] | None = None, sets: Sequence[str] = ()
) -> tuple[Task, Samples]:
    """A trained model and its input.

    Args:
        path: a run folder, a checkpoint or an exported folder.
        text: the input; by default the run's own validation data.
        lengths: in tokens; by default the trained one, twice and four times that.
        sets: `key=value` changes to keys that may change after training.

    Raises:
        InputError: nothing usable at `path`, or no data.
    """
    notes: list[str] = []
    if text is not None:
        run = load_run(path, sets)
        task, tokenizer = run.task, _own_tokenizer(run)
        ids = tokenizer.encode(text)
        if len(ids) < 2:
            raise InputError(f"a text of {len(ids)} tokens: it must have two or more")
        batches = _of_text(task, ids, _lengths(task, lengths, notes), notes)
        excerpt = torch.from_numpy(ids[: min(EXCERPT, task.model.encoding.max_length or EXCERPT)])
        return task, Samples(excerpt, _names(tokenizer, excerpt), batches, notes)
    ((run, source),) = load_runs([path], sets=sets)
    task = run.task
    batches = _of_data(source, _lengths(task, lengths, notes), notes)
    if not batches:
        raise InputError(f"nothing to draw: {'; '.join(notes)}; give another --lengths, or a --text")
    excerpt = batches[min(batches)]["tokens"][0, :EXCERPT]
    names = _names(source.tokenizer, excerpt) if source.kind == "text" else list(map(str, excerpt.tolist()))
    return task, Samples(excerpt, names, batches, notes)


def _lengths(task: Task, asked: Sequence[int] | None, notes: list[str]) -> list[int]:
    """The lengths that the encoding takes, ascending."""
    trained = task.recipe.data.sequence_length
    wanted = sorted(set(asked or [min(LONGEST, times * trained) for times in TIMES]))
    ends = {length: end_of_encoding(task, length) for length in wanted}
    for note in dict.fromkeys(filter(None, ends.values())):
        notes.append(f"{note}: not drawn is length {_listed([n for n in wanted if ends[n] == note])}")
    return [length for length in wanted if ends[length] is None]


def _count(length: int) -> int:
    return max(FEWEST, min(MOST, PAIRS // length**2))


def _of_data(source: DataSource, lengths: Sequence[int], notes: list[str]) -> dict[int, Batch]:
    """Sequences of the validation data. Of a text, shorter ones are the beginnings of the longer."""
    batches: dict[int, Batch] = {}
    if source.kind != "text":
        for length in lengths:
            try:
                examples = source.examples("valid", length, _count(length))
                batches[length] = examples.batch(range(_count(length)))
            except InputError as error:
                notes.append(f"length {length}: {error.problems[0]}")
        return batches
    long = [length for length in lengths if len(source.dataset("valid", length=length))]
    if missing := [length for length in lengths if length not in long]:
        notes.append(f"the validation text is too short for length {_listed(missing)}")
    if long:
        windows = source.dataset("valid", length=long[-1])
        count = min(_count(long[-1]), len(windows))
        batches = _beginnings(
            windows.batch(np.linspace(0, len(windows) - 1, count).round().astype(int)), long
        )
    return batches


def _of_text(task: Task, ids: np.ndarray, lengths: Sequence[int], notes: list[str]) -> dict[int, Batch]:
    """Windows of a text, spread evenly over it."""
    long = [length for length in lengths if length < len(ids)]
    if missing := [length for length in lengths if length not in long]:
        notes.append(f"the text has only {len(ids)} tokens: not drawn is length {_listed(missing)}")
    if not long:
        return {}
    count = min(_count(long[-1]), max(1, (len(ids) - 1) // long[-1]))
    starts = np.linspace(0, len(ids) - 1 - long[-1], count).astype(int)
    windows = torch.from_numpy(np.stack([ids[start : start + long[-1] + 1] for start in starts]))
    whole = {"tokens": windows[:, :-1]}
    if task.model.causal:  # an encoder predicts masked tokens, and here no token is masked
        whole["targets"] = windows[:, 1:]
    return _beginnings(whole, long)


def _beginnings(whole: Batch, lengths: Sequence[int]) -> dict[int, Batch]:
    return {length: {name: values[:, :length] for name, values in whole.items()} for length in lengths}


def _own_tokenizer(run: LoadedRun) -> TextTokenizer:
    """The tokenizer in the folder of a run. Raises InputError where it has none."""
    file = run.tokenizer
    if not file.is_file():
        raise InputError(f"{file.parent}: no {file.name} in it, so it reads no text; leave out --text")
    return open_tokenizer(str(file))


def _names(tokenizer: TextTokenizer, tokens: Tensor) -> list[str]:
    """Tokens as text without spaces around; white space alone is written out."""
    names = []
    for token in tokens.tolist():
        text = tokenizer.decode([token])
        name = repr((text.strip(" ") or "␣" * len(text)).replace("\n", "↵").replace("\t", "⇥"))[1:-1]
        names.append(name if len(name) <= LABEL else f"{name[: LABEL - 1]}…")
    return names


def _listed(lengths: Sequence[int]) -> str:
    return ", ".join(map(str, lengths))
