"""Trained models, the data they are scored on, and the folders of their results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.data import open_data
from zoo.data.source import DataSource
from zoo.errors import InputError, Problem, collect
from zoo.evaluation.protocols.protocol import build_protocol
from zoo.evaluation.store import validate_results_folder
from zoo.recipe import Recipe
from zoo.recipe.rules import no_protocol
from zoo.runs.card import changed_data
from zoo.runs.load import find_checkpoint, load_task, run_folder_of
from zoo.tasks.task import Task

MAX_LENGTH = 2**40
"""The longest sequence that is tried: the number of a longer one may not be stored either."""


@dataclass(frozen=True)
class LoadedRun:
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


def load_runs(
    paths: Sequence[Path],
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    sets: Sequence[str] = (),
) -> list[LoadedRun]:
    """Load all that is to be evaluated, each checkpoint once; arguments as in `evaluate`.

    Raises:
        InputError: everything that is wrong about any of it, before anything is measured.
    """
    loaded: dict[Path, LoadedRun] = {}
    problems: list[Problem] = []
    for path in paths:
        with collect(problems):
            checkpoint = find_checkpoint(path)
            if checkpoint.resolve() in loaded:
                continue
            folder = run_folder_of(checkpoint) or checkpoint.parent
            # What could not be stored is not measured.
            with collect(problems):
                validate_results_folder(folder)
            task, source = _model_and_data(path, lengths, protocols, sets)
            loaded[checkpoint.resolve()] = LoadedRun(path, checkpoint, folder, task, source)
    if problems:
        # A fault of the sets is one of every run, and is reported once.
        raise InputError(dict.fromkeys(problems))
    return [*loaded.values()]


def _model_and_data(
    path: Path, lengths: Sequence[int] | None, protocols: Sequence[str] | None, sets: Sequence[str]
) -> tuple[Task, DataSource]:
    task = load_task(path, sets)
    recipe = _with_own_tokenizer(task.recipe, path)
    lengths, names = lengths or recipe.evaluate.lengths, protocols or recipe.evaluate.protocols
    faults = [no_protocol(name, recipe.task.name) for name in dict.fromkeys(protocols or ())]
    if max(lengths) > MAX_LENGTH:
        faults.append(f"no memory holds sequences of {max(lengths)} tokens")
    if any(faults):
        raise InputError(Problem(fault, where=str(path)) for fault in faults if fault)
    for name in names:
        build_protocol(name, recipe.evaluate).validate(recipe.evaluate, lengths)
    source = open_data(recipe)
    card = task.card or {}
    padded = card.get("imported") and source.vocab_size < task.hparams["vocab_size"]
    # Token ids mean nothing to a model that was trained with another tokenizer, and results on another text
    # would stand among those of the one that the card names.
    if source.vocab_size != task.hparams["vocab_size"] and not padded:
        raise InputError(
            f"{path}: {recipe.data.name!r} now has {source.vocab_size} tokens, and this model was trained "
            f"with {task.hparams['vocab_size']}: the text has changed, or data.root or data.vocab_size is "
            f"another"
        )
    if differing := changed_data(task.card, source):
        raise InputError(
            f"{path}: {'; '.join(differing)} since this model was trained: its results would be of other "
            f"data than its card says. Put the old text back, or name its place with --set data.root=..."
        )
    return task, source


def _with_own_tokenizer(recipe: Recipe, path: Path) -> Recipe:
    """A recipe that names a tokenizer's file which is gone takes the copy in its run folder instead."""
    named, folder = getattr(recipe.data, "tokenizer", None), run_folder_of(find_checkpoint(path))
    own = None if folder is None else folder / "tokenizer.json"
    if named is None or Path(named).exists() or own is None or not own.is_file():
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"tokenizer": str(own)})})
