"""Trained models, the data they are scored on, and the folders of their results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.data import open_data
from zoo.data.source import DataSource
from zoo.data.text.tokenizer import CHARACTERS
from zoo.errors import InputError, Problem, collect
from zoo.evaluation.protocols.protocol import build_protocol
from zoo.evaluation.store import validate_results_folder
from zoo.recipe import Recipe, read_recipe, resolve
from zoo.recipe.rules import no_protocol
from zoo.recipe.tree import read_file
from zoo.registry import tasks
from zoo.runs.card import changed_data
from zoo.runs.load import find_checkpoint, load_task, run_folder_of, tokenizer_beside
from zoo.tasks.task import Task

KEPT = ("sequence_length", "batch_size", "workers", "cache", "packing")
"""Options under `data` that another corpus takes from the run."""


@dataclass(frozen=True)
class LoadedRun:
    """A trained model, its data, and the folder of its results; `path` is the user's argument."""

    path: Path
    checkpoint: Path
    folder: Path
    task: Task
    source: DataSource


def load_runs(
    paths: Sequence[Path],
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    sets: Sequence[str] = (),
    data: str | None = None,
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
            task, source = _model_and_data(path, lengths, protocols, sets, data)
            loaded[checkpoint.resolve()] = LoadedRun(path, checkpoint, folder, task, source)
    if problems:
        # A wrong `sets` is a problem of every run: report it once.
        raise InputError(dict.fromkeys(problems))
    return [*loaded.values()]


def _model_and_data(
    path: Path,
    lengths: Sequence[int] | None,
    protocols: Sequence[str] | None,
    sets: Sequence[str],
    data: str | None,
) -> tuple[Task, DataSource]:
    data = data or next((one.partition("=")[2] for one in sets if one.startswith("data.name=")), None)
    of_data = [one for one in sets if data and one.startswith("data.")]
    task = load_task(path, [one for one in sets if one not in of_data])
    recipe = _with_own_tokenizer(task.recipe, path)
    lengths, names = lengths or recipe.evaluate.lengths, protocols or recipe.evaluate.protocols
    faults = [no_protocol(name, recipe.task.name) for name in dict.fromkeys(protocols or ())]
    if not lengths:
        faults.append("evaluate.lengths is empty; give --lengths")
    if any(faults):
        raise InputError(Problem(fault, where=str(path)) for fault in faults if fault)
    for name in names:
        build_protocol(name, recipe.evaluate).validate(recipe.evaluate, lengths)
    card = task.card or {}
    if data is not None:
        return task, _other_corpus(recipe, card, path, data, of_data)
    source = open_data(recipe)
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
            f"the evaluated data. Restore the text, or give its folder with --set data.root=...; "
            f"--data scores the run on another corpus"
        )
    return task, source


def _other_corpus(
    recipe: Recipe, card: dict[str, Any], path: Path, data: str, sets: Sequence[str]
) -> DataSource:
    """A text in the tokens of a run: `data` is as of `evaluate`, and `sets` change its options.

    Raises:
        InputError: the run was not trained on text, its tokenizer is missing, or there is no such text.
    """
    tokenizer = _own_tokenizer(path) or getattr(recipe.data, "tokenizer", None)
    if tasks.describe(recipe.task.name).takes != "text" or tokenizer is None:
        message = "--data is for a model of text that has its tokenizer"
        raise InputError(Problem(message, where=str(path)))
    own = recipe.as_dict()["data"]
    given = Path(data)
    if given.suffix in (".yaml", ".yml"):
        section = read_file(given).values
        if {"data", "base"} & section.keys():
            section = read_recipe(given).as_dict()["data"]
    elif given.exists():
        section = {"name": "text", "root": data, "whole": True}
    else:
        section = {"name": data} | ({} if own["name"] == "text" else {"root": own.get("root")})
    section |= {key: own[key] for key in KEPT if key in own} | {"tokenizer": str(tokenizer)}
    source = open_data(resolve({**recipe.as_dict(), "data": section}, sets, trained=True))
    if source.fingerprint["tokenizer"] != card.get("fingerprint", {}).get("tokenizer"):
        raise InputError(Problem("not the tokenizer that this model was trained with", where=str(tokenizer)))
    if source.fingerprint["corpus"] != card["fingerprint"].get("corpus"):
        source.label = os.path.normpath(data)
    return source


def _own_tokenizer(path: Path) -> Path | None:
    """The tokenizer in the folder of a checkpoint or its run."""
    file = tokenizer_beside(find_checkpoint(path))
    return file if file.is_file() else None


def _with_own_tokenizer(recipe: Recipe, path: Path) -> Recipe:
    """If the tokenizer file of a recipe is missing, use the copy in the run folder."""
    named, own = getattr(recipe.data, "tokenizer", None), _own_tokenizer(path)
    if named in (None, CHARACTERS) or Path(named).exists() or own is None:
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"tokenizer": str(own)})})
