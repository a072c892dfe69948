"""What is evaluated: trained models, what they are scored on, and where their results go."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from zoo.data import open_data
from zoo.data.source import DataSource
from zoo.errors import InputError, Problem
from zoo.evaluation.protocols import sliding
from zoo.evaluation.results import must_take_results
from zoo.recipe.rules import no_protocol
from zoo.runs.card import changed_data
from zoo.runs.load import find_checkpoint, load_task, run_folder_of
from zoo.tasks.task import Task

LONGEST = 2**40
"""No array of more tokens than this is tried."""


@dataclass(frozen=True)
class Subject:
    """A trained model, its data, and the folder that its results go to; `path` is what the user gave."""

    path: Path
    checkpoint: Path
    folder: Path
    task: Task
    source: DataSource

    @property
    def name(self) -> str:
        """The folder as it is shortest: as it was given, or from where the user stands."""
        given = [str(self.path)] if self.path.is_dir() else []
        return min(*given, str(self.folder), os.path.relpath(self.folder), key=len)


def open_subjects(
    paths: Sequence[Path],
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    sets: Sequence[str] = (),
) -> list[Subject]:
    """Open all that is to be evaluated; arguments as in `evaluate`.

    Raises:
        InputError: everything that is wrong about any of it, before anything is measured.
    """
    subjects, problems, seen = [], [], set()
    for path in paths:
        try:
            checkpoint = find_checkpoint(path)
            if checkpoint.resolve() in seen:
                continue
            seen.add(checkpoint.resolve())
            subjects.append(_opened(path, checkpoint, lengths, protocols, sets))
        except InputError as error:
            problems += error.problems
    if problems:
        # What is wrong with the sets is so for every run, and told once.
        raise InputError(dict.fromkeys(problems))
    return subjects


def _opened(
    path: Path,
    checkpoint: Path,
    lengths: Sequence[int] | None,
    protocols: Sequence[str] | None,
    sets: Sequence[str],
) -> Subject:
    folder = run_folder_of(checkpoint) or checkpoint.parent
    problems: list[Problem] = []
    # What could not be stored is not measured.
    with _gathered(problems):
        must_take_results(folder)
    with _gathered(problems):
        task, source = _model_and_data(path, lengths, protocols, sets)
    if problems:
        raise InputError(problems)
    return Subject(path, checkpoint, folder, task, source)


@contextmanager
def _gathered(problems: list[Problem]) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        problems += error.problems


def _model_and_data(
    path: Path, lengths: Sequence[int] | None, protocols: Sequence[str] | None, sets: Sequence[str]
) -> tuple[Task, DataSource]:
    task = load_task(path, sets)
    recipe, name = task.recipe, task.recipe.task.name
    faults = [no_protocol(protocol, name) for protocol in dict.fromkeys(protocols or ())]
    problems = [Problem(fault, where=str(path)) for fault in faults if fault]
    if problems:
        raise InputError(problems)
    if "sliding" in (protocols or recipe.evaluate.protocols):
        sliding.must_cover(recipe.evaluate.stride, lengths or recipe.evaluate.lengths)
    # Of a checkpoint that came from elsewhere the folder is not the user's wish.
    source = open_data(recipe, write_cache=any(one.partition("=")[0].strip() == "data.cache" for one in sets))
    _must_have_same_data(path, task, source)
    beyond = [length for length in lengths or recipe.evaluate.lengths if length > LONGEST]
    if beyond and source.kind != "text":
        # A text ends, and says so; examples are made as long as is asked for.
        raise InputError(Problem(f"no memory holds sequences of {beyond[0]} tokens", where=str(path)))
    return task, source


def _must_have_same_data(path: Path, task: Task, source: DataSource) -> None:
    """Token ids mean nothing to a model that was trained with another tokenizer, and results on another text
    would stand among those of the one that the card names."""
    name = task.recipe.data.name
    if source.vocab_size != task.hparams["vocab_size"]:
        raise InputError(
            f"{path}: {name!r} now has {source.vocab_size} tokens, and this model was trained with "
            f"{task.hparams['vocab_size']}: the text has changed, or data.root or data.vocab_size is another"
        )
    differing = changed_data(task.card, source)
    if differing:
        raise InputError(
            f"{path}: {'; '.join(differing)} since this model was trained: its results would be of other "
            f"data than its card says. Put the old text back, or name its place with --set data.root=..."
        )
