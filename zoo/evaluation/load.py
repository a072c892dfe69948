"""Trained models with the data they are scored on: all refusals of an evaluation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from zoo.data import open_data
from zoo.data.source import DataSource
from zoo.data.text.tokenizer import CHARACTERS
from zoo.errors import InputError, Problem, collect
from zoo.evaluation.protocols.protocol import build_protocol
from zoo.evaluation.store import validate_results_folder
from zoo.recipe import Recipe, read_recipe, resolve
from zoo.recipe.diff import diff
from zoo.recipe.rules import no_protocol
from zoo.recipe.tree import read_file
from zoo.runs.card import changed_data
from zoo.runs.load import LoadedRun, load_run

KEPT = ("sequence_length", "batch_size", "workers", "cache", "packing")
"""Options under `data` that another corpus takes from the run."""
RECIPES = (".yaml", ".yml")


def load_runs(
    paths: Sequence[Path],
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    sets: Sequence[str] = (),
    data: str | None = None,
) -> list[tuple[LoadedRun, DataSource]]:
    """The models to be evaluated with the data they are scored on, each checkpoint once.

    Args: those of `zoo.evaluation.evaluate.evaluate_runs`.

    Raises:
        InputError: all problems of all runs, before anything is measured.
    """
    data = data or next((one.partition("=")[2] for one in sets if one.startswith("data.name=")), None)
    of_data = [one for one in sets if data and one.startswith("data.")]
    of_model = [one for one in sets if one not in of_data]
    loaded: dict[Path, tuple[LoadedRun, DataSource]] = {}
    problems: list[Problem] = []
    for path in paths:
        with collect(problems):
            run = load_run(path, of_model)
            if run.checkpoint.resolve() in loaded:
                continue
            with collect(problems):
                validate_results_folder(run.folder)
            _validate_protocols(run, lengths, protocols)
            _choose_split(run, data, sets)
            source = open_data(_own_data(run) if data is None else _other_data(run, data, of_data))
            _validate_source(run, source, data)
            loaded[run.checkpoint.resolve()] = run, source
    if problems:
        # A wrong `sets` is a problem of every run: report it once.
        raise InputError(dict.fromkeys(problems))
    return [*loaded.values()]


def _validate_protocols(
    run: LoadedRun, lengths: Sequence[int] | None, protocols: Sequence[str] | None
) -> None:
    """Raises InputError for protocols that cannot score a model at these lengths; by default the recipe's."""
    recipe = run.task.recipe
    lengths, names = lengths or recipe.evaluate.lengths, protocols or recipe.evaluate.protocols
    faults = [no_protocol(name, recipe.task.name) for name in dict.fromkeys(protocols or ())]
    if not lengths:
        faults.append("evaluate.lengths is empty; give --lengths")
    if any(faults):
        raise InputError(Problem(fault, where=str(run.path)) for fault in faults if fault)
    for name in names:
        build_protocol(name, recipe.evaluate).validate(recipe.evaluate, lengths)


def _choose_split(run: LoadedRun, data: str | None, sets: Sequence[str]) -> None:
    """Score all documents of a file or folder, and of the text of an imported model, unless a split is given.

    Raises InputError where all are asked for of the text that the model was trained on.
    """
    recipe, imported = run.task.recipe, (run.task.card or {}).get("imported")
    root = recipe.data.root if recipe.data.name == "text" else None
    is_files = data is not None and Path(data).exists() and Path(data).suffix not in RECIPES
    is_own = data is None or (is_files and root and Path(data).resolve() == Path(root).resolve())
    is_trained_on, split = is_own and not imported, recipe.evaluate.split
    by_default = is_files or (data is None and root and split is None)
    given = any(one.startswith("evaluate.split=") for one in sets)
    if run.task.takes == "text" and by_default and not (is_trained_on or given):
        split = "all"
        evaluate = recipe.evaluate.model_copy(update={"split": split})
        run.task.recipe = recipe.model_copy(update={"evaluate": evaluate})
    if split == "all" and (is_trained_on or run.task.takes != "text"):
        message = "all is for a text that the model was not trained on; choose valid or test"
        raise InputError(Problem(message, key="evaluate.split", where=str(run.path)))


def _own_data(run: LoadedRun) -> Recipe:
    """The recipe of a model, for the data of its training."""
    recipe = run.task.recipe
    named = getattr(recipe.data, "tokenizer", None)
    if named in (None, CHARACTERS) or Path(named).exists() or not run.tokenizer.is_file():
        return recipe
    own = recipe.data.model_copy(update={"tokenizer": str(run.tokenizer)})
    return recipe.model_copy(update={"data": own})


def _other_data(run: LoadedRun, data: str, sets: Sequence[str]) -> Recipe:
    """The recipe of a model, for other data in its tokens: `data` is as of `evaluate`; `sets` change its
    options.

    Raises:
        InputError: another dataset than the generated one of the run, a tokenizer or a text that is
            missing.
    """
    recipe = run.task.recipe
    own = recipe.as_dict()["data"]
    if run.task.takes != "text":
        if data != own["name"]:
            message = f"trained on generated data: --data takes {own['name']}, and --set data... its options"
            raise InputError(Problem(message, where=str(run.path)))
        return resolve(recipe.as_dict(), sets, trained=True)
    tokenizer = run.tokenizer if run.tokenizer.is_file() else getattr(recipe.data, "tokenizer", None)
    if tokenizer is None:
        message = "--data is for a model of text that has its tokenizer"
        raise InputError(Problem(message, where=str(run.path)))
    given = Path(data)
    if given.suffix in RECIPES:
        section = read_file(given).values
        if {"data", "base"} & section.keys():
            section = read_recipe(given).as_dict()["data"]
    elif given.exists():
        section = {"name": "text", "root": data}
    elif given.suffix or len(given.parts) > 1:
        raise InputError(Problem("no such file or folder", where=f"--data {data}"))
    else:
        section = {"name": data} | ({} if own["name"] == "text" else {"root": own.get("root")})
    section |= {key: own[key] for key in KEPT if key in own} | {"tokenizer": str(tokenizer)}
    return resolve({**recipe.as_dict(), "data": section}, sets, trained=True)


def _validate_source(run: LoadedRun, source: DataSource, data: str | None) -> None:
    """Compare opened data with the training of a model, and label another corpus.

    Raises InputError for another tokenizer: token ids of another one mean nothing to this model. Without
    `data`, also for another corpus: its results would be stored as those on the text that the card names.
    """
    card, trained = run.task.card or {}, run.task.vocab_size
    if data is not None and source.kind == "text":
        then = card.get("fingerprint", {})
        if source.fingerprint["tokenizer"] != then.get("tokenizer"):
            named = str(source.recipe.data.tokenizer)
            raise InputError(Problem("not the tokenizer that this model was trained with", where=named))
        if source.fingerprint["corpus"] != then.get("corpus"):
            source.label = os.path.normpath(data)
        return
    padded = card.get("imported") and source.vocab_size < trained
    if source.vocab_size != trained and not padded:
        raise InputError(
            f"{run.path}: {source.recipe.data.name!r} has {source.vocab_size} tokens, but this model was "
            f"trained with {trained}: the text, data.root or data.vocab_size has changed"
        )
    if data is not None:
        own, other = (one.as_dict()["data"] for one in (run.task.recipe, source.recipe))
        source.label = ", ".join(f"{key} {value}" for key, _, value in diff(own, other)) or None
        return
    if differing := changed_data(card, source):
        raise InputError(
            f"{run.path}: {'; '.join(differing)} since this model was trained, so its card would not "
            f"describe the evaluated data. Restore the text, or give its folder with --set data.root=...; "
            f"--data scores the run on another corpus"
        )
