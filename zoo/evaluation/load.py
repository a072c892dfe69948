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


@dataclass(frozen=True)
class LoadedRun:
    """A trained model, its data, and the folder of its results; `path` is the user's argument."""

    path: Path
    checkpoint: Path
    folder: Path
    task: Task
    source: DataSource

    @property
    def name(self) -> str:
        """The shortest path of the folder: as given, or relative to the current folder."""
        given = [str(self.path)] if self.path.is_dir() else []
        return min(*given, str(self.folder), os.path.relpath(self.folder), key=len)


def load_runs(
    paths: Sequence[Path],
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    sets: Sequence[str] = (),
) -> list[LoadedRun]:
    """Load the models to be evaluated, each checkpoint once; arguments as in `evaluate`.

    Raises:
        InputError: all problems of all runs, before anything is measured.
    """
    loaded: dict[Path, LoadedRun] = {}
    problems: list[Problem] = []
    for path in paths:
        with collect(problems):
            checkpoint = find_checkpoint(path)
            if checkpoint.resolve() in loaded:
                continue
            folder = run_folder_of(checkpoint) or checkpoint.parent
            with collect(problems):
                validate_results_folder(folder)
            task, source = _model_and_data(path, lengths, protocols, sets)
            loaded[checkpoint.resolve()] = LoadedRun(path, checkpoint, folder, task, source)
    if problems:
        # A wrong `sets` is a problem of every run: report it once.
        raise InputError(dict.fromkeys(problems))
    return [*loaded.values()]


def _model_and_data(
    path: Path, lengths: Sequence[int] | None, protocols: Sequence[str] | None, sets: Sequence[str]
) -> tuple[Task, DataSource]:
    task = load_task(path, sets)
    recipe = _with_own_tokenizer(task.recipe, path)
    lengths, names = lengths or recipe.evaluate.lengths, protocols or recipe.evaluate.protocols
    faults = [no_protocol(name, recipe.task.name) for name in dict.fromkeys(protocols or ())]
    if not lengths:
        faults.append("evaluate.lengths is empty; give --lengths")
    if any(faults):
        raise InputError(Problem(fault, where=str(path)) for fault in faults if fault)
    for name in names:
        build_protocol(name, recipe.evaluate).validate(recipe.evaluate, lengths)
    source = open_data(recipe)
    card = task.card or {}
    padded = card.get("imported") and source.vocab_size < task.hparams["vocab_size"]
    # Token ids of another tokenizer mean nothing to this model, and its results would be stored as results on
    # the text that the card names.
    if source.vocab_size != task.hparams["vocab_size"] and not padded:
        raise InputError(
            f"{path}: {recipe.data.name!r} has {source.vocab_size} tokens, but this model was trained with "
            f"{task.hparams['vocab_size']}: the text, data.root or data.vocab_size has changed"
        )
    if differing := changed_data(task.card, source):
        raise InputError(
            f"{path}: {'; '.join(differing)} since this model was trained, so its card would not describe "
            f"the evaluated data. Restore the text, or give its folder with --set data.root=..."
        )
    return task, source


def _with_own_tokenizer(recipe: Recipe, path: Path) -> Recipe:
    """If the tokenizer file of a recipe is missing, use the copy in the run folder."""
    named, folder = getattr(recipe.data, "tokenizer", None), run_folder_of(find_checkpoint(path))
    own = None if folder is None else folder / "tokenizer.json"
    if named is None or Path(named).exists() or own is None or not own.is_file():
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"tokenizer": str(own)})})
