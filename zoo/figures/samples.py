"""What a trained model is shown, so that one sees what it does: an excerpt, and sequences of some lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from zoo.data.source import DataSource
from zoo.data.text.tokenizer import TextTokenizer, open_tokenizer
from zoo.errors import InputError, Problem
from zoo.evaluation.load import load_runs
from zoo.evaluation.protocols.protocol import end_of_encoding
from zoo.runs.load import find_checkpoint, load_task, run_folder_of
from zoo.tasks.task import Task

TIMES = (1, 2, 4)
"""Of the trained length: the lengths that are drawn unless others are asked for."""
LONGEST = 4096
"""Tokens; longer sequences are drawn only where they are asked for."""
PAIRS, FEWEST, MOST = 2**23, 4, 48
"""Pairs of tokens of all sequences of a length together, and how few and many sequences those may be."""
EXCERPT = 12
"""Tokens of which each pair is drawn, and named."""
LABEL = 9
"""Characters of a token's name."""
LINE = "↵"
"""The end of a line, in a token's name."""

Batch = dict[str, Tensor]
"""`tokens` [W,T], and `targets` [W,T] or `answer` [W] where something is predicted."""


@dataclass(frozen=True)
class Samples:
    """What one model is shown.

    Attributes:
        excerpt: [T] token ids, at most `EXCERPT`.
        names: of its tokens, as they are written beside them.
        batches: sequences by their length, in tokens.
        source: what these are, in words.
        notes: what is not drawn, and why; a sentence each.
    """

    excerpt: Tensor
    names: list[str]
    batches: dict[int, Batch]
    source: str
    notes: list[str] = field(default_factory=list)


def open_samples(
    path: Path, text: str | None = None, lengths: Sequence[int] | None = None, sets: Sequence[str] = ()
) -> tuple[Task, Samples]:
    """A trained model, and what it is shown.

    Args:
        path: a run folder, a checkpoint or an exported folder.
        text: the excerpt is its beginning; if it is long enough, so are the sequences. By default both are
            of the run's own validation data.
        lengths: in tokens; by default the trained one, twice and four times that.
        sets: `key=value` changes to what may change of a trained model.

    Raises:
        InputError: nothing usable there, or no data to show and no text given.
    """
    notes: list[str] = []
    if text is None:
        (loaded,) = load_runs([path], sets=sets)
        task, source = loaded.task, loaded.source
        wanted = _lengths(task, lengths, notes)
        batches = _of_data(task, source, wanted, notes)
        excerpt, names = _excerpt(task, source, batches, wanted)
        return task, Samples(excerpt, names, batches, _described(task, batches), notes)
    task = load_task(path, sets)
    tokenizer = _own_tokenizer(path)
    ids = tokenizer.encode(text)
    if len(ids) < 2:
        raise InputError(f"a text of {len(ids)} tokens: it must have two or more")
    wanted = _lengths(task, lengths, notes)
    short = [length for length in wanted if length >= len(ids)]
    batches, about = _of_text(task, ids, [length for length in wanted if length not in short]), "the text"
    if not batches:
        notes.append(f"the text has {len(ids)} tokens: panels by position show the validation data")
        try:
            (loaded,) = load_runs([path], sets=sets)
            batches = _of_data(task, loaded.source, wanted, notes)
            about = _described(task, batches)
        except InputError as error:
            notes[-1] = f"the text has {len(ids)} tokens, and {error.problems[0]}: nothing is drawn by length"
    elif short:
        notes.append(f"the text has only {len(ids)} tokens: not drawn is length {_listed(short)}")
    first = torch.from_numpy(ids[: min(EXCERPT, task.model.encoding.max_length or EXCERPT)])
    return task, Samples(first, _names(tokenizer, first), batches, about, notes)


def _lengths(task: Task, asked: Sequence[int] | None, notes: list[str]) -> list[int]:
    """The lengths that the encoding takes, ascending."""
    trained = task.recipe.data.sequence_length
    if asked is None:
        wanted = [times * trained for times in TIMES if times * trained <= LONGEST] or [LONGEST]
        if trained > LONGEST:
            notes.append(f"drawn to {LONGEST} tokens of the trained {trained}; --lengths takes others")
    else:
        wanted = sorted(set(asked))
    ends = {length: end_of_encoding(task, length) for length in wanted}
    for note in dict.fromkeys(filter(None, ends.values())):
        notes.append(f"{note}: not drawn is length {_listed([n for n in wanted if ends[n] == note])}")
    return [length for length in wanted if ends[length] is None]


def _count(length: int) -> int:
    return max(FEWEST, min(MOST, PAIRS // length**2))


def _of_data(task: Task, source: DataSource, lengths: Sequence[int], notes: list[str]) -> dict[int, Batch]:
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
        spread = np.unique(np.linspace(0, len(windows) - 1, count).round().astype(int))
        whole = windows.batch(spread)
        batches = {n: {name: values[:, :n] for name, values in whole.items()} for n in long}
    return batches


def _of_text(task: Task, ids: np.ndarray, lengths: Sequence[int]) -> dict[int, Batch]:
    """Windows of a text, spread evenly over it."""
    if not lengths:
        return {}
    longest = lengths[-1]
    count = min(_count(longest), max(1, (len(ids) - 1) // longest))
    starts = np.linspace(0, len(ids) - 1 - longest, count).astype(int)
    windows = torch.from_numpy(np.stack([ids[start : start + longest + 1] for start in starts]))
    whole = {"tokens": windows[:, :-1]}
    if task.model.causal:  # an encoder predicts what is hidden, and here nothing is
        whole["targets"] = windows[:, 1:]
    return {n: {name: values[:, :n] for name, values in whole.items()} for n in lengths}


def _excerpt(
    task: Task, source: DataSource, batches: dict[int, Batch], lengths: Sequence[int]
) -> tuple[Tensor, list[str]]:
    """Tokens of one line of the first of the sequences; of questions a short one, so that it is whole."""
    if source.kind != "text":
        try:
            tokens = source.examples("valid", EXCERPT, 1).batch([0])["tokens"][0]
        except InputError:
            tokens = next(
                (batch["tokens"][0] for batch in batches.values()), torch.zeros(0, dtype=torch.long)
            )
        tokens = tokens[:EXCERPT]
        return tokens, [str(int(token)) for token in tokens]
    if not batches:
        raise InputError(
            Problem(f"the validation text is too short for a length of {min(lengths, default=0)}; give a "
            f"shorter --lengths, or a --text")
        )  # fmt: skip
    tokens = next(iter(batches.values()))["tokens"][0]
    names = _names(source.tokenizer, tokens)
    # A line of its own, such as a heading, would be a poor excerpt.
    starts = (at for at in range(len(names) - EXCERPT) if LINE not in "".join(names[at : at + EXCERPT]))
    start = next(starts, 0)
    return tokens[start : start + EXCERPT], names[start : start + EXCERPT]


def _described(task: Task, batches: dict[int, Batch]) -> str:
    counts = sorted({len(batch["tokens"]) for batch in batches.values()})
    number = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0] if counts else 0}"
    return f"{number} sequences of its validation data, {task.recipe.data.name}"


def _own_tokenizer(path: Path) -> TextTokenizer:
    """The tokenizer in the folder of a run. Raises InputError where it has none."""
    checkpoint = find_checkpoint(path)
    folder = run_folder_of(checkpoint) or checkpoint.parent
    if not (folder / "tokenizer.json").is_file():
        raise InputError(f"{folder}: no tokenizer.json in it, so it reads no text; leave out --text")
    return open_tokenizer(str(folder / "tokenizer.json"))


def _names(tokenizer: TextTokenizer, tokens: Tensor) -> list[str]:
    """Tokens as one reads them beside a picture: without the spaces around, those of nothing else spelled."""
    names = []
    for token in tokens.tolist():
        text = tokenizer.decode([token])
        name = text.strip(" ") or "␣" * len(text)
        name = name.replace("\n", LINE).replace("\t", "⇥")
        names.append(name if len(name) <= LABEL else f"{name[: LABEL - 1]}…")
    return names


def _listed(lengths: Sequence[int]) -> str:
    return ", ".join(map(str, lengths))
