"""Loading a trained model from a checkpoint, without running any code that the file names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from zoo.errors import InputError, Problem
from zoo.launch.ranks import is_first_process
from zoo.recipe import Recipe, resolve
from zoo.recipe.encoding import encoding_changes, may_change
from zoo.recipe.diff import ENCODING, diff, differs, is_among, may_change_after_training
from zoo.runs.checkpoint_file import read_checkpoint
from zoo.runs.code_source import (
    Source,
    changed_digests,
    recorded_sources,
    describe_changes,
    describe_missing,
)
from zoo.runs.folder import LAST, RECIPE
from zoo.runs.weights import build_for_weights
from zoo.tasks.task import Task

MANY_RUNS = 12
"""No more than this are named in a message."""


def find_checkpoint(path: Path) -> Path:
    """A checkpoint file itself, or the last one of a run folder or of its folder of checkpoints.

    Raises:
        InputError: neither is there, or there is no permission to look.
    """
    try:
        if path.is_file():
            return path
        if not path.is_dir():
            raise InputError(f"{path}: no such run or checkpoint")
        last = path / LAST
        for file in (last, path / LAST.name):
            if file.is_file():
                return file
        runs = sorted(str(file.parent.parent) for file in path.glob(f"*/{LAST}"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    why = f" ({last} does not exist)"
    if runs:
        more = f" and {len(runs) - MANY_RUNS} more" if len(runs) > MANY_RUNS else ""
        why = f"; the runs in it: {', '.join(runs[:MANY_RUNS])}{more}"
    raise InputError(f"{path}: no checkpoint in it{why}")


def run_folder_of(checkpoint: Path) -> Path | None:
    """The run folder in which a checkpoint lies, or None for one that lies alone."""
    folder = checkpoint.resolve().parent.parent
    return folder if (folder / RECIPE).is_file() else None


def load_task(path: Path, sets: Sequence[str] = (), plugins: Sequence[str | Path] = ()) -> Task:
    """The trained task in a checkpoint, on the CPU, in evaluation mode.

    Args:
        path: a checkpoint or a run folder.
        sets: `key=value` changes to its recipe; none that would make it another model. What of its encoding
            may change, the encoding declares (`after_training`, `replaces`); it is recorded in `Task.changed`.
        plugins: Python files that the user names; one that only the checkpoint names is never run.

    Raises:
        InputError: nothing usable there, an encoding whose plugin was not named, or a change of the model.
    """
    content = read_checkpoint(find_checkpoint(path))
    settings = content["hyper_parameters"]
    sources = recorded_sources(content.get("zoo_card"))
    try:
        recipe = _with_named_plugins(settings["recipe"], path, sets, plugins, sources)
        changed = _changes_of_encoding(settings["recipe"], recipe, path, sets)
        task = build_for_weights(content["state_dict"], recipe, settings["vocab_size"])
    except InputError as error:
        raise InputError(
            [replace(problem, where=problem.where or str(path)) for problem in error.problems]
        ) from error
    # What other code gives is no result of the code that was trained.
    task.changed = changed | changed_digests(sources)
    task.card = content.get("zoo_card", {})
    task.load_state_dict(content["state_dict"])
    return task.eval()


def _with_named_plugins(
    recipe: dict[str, Any],
    path: Path,
    sets: Sequence[str],
    plugins: Sequence[str | Path],
    sources: Sequence[Source],
) -> Recipe:
    """A stored recipe with the changes in `sets`, and with the user's plugins in place of its own.

    `sources` are those of the encodings that it was trained with; a warning is printed where their code has changed.
    """
    named = [str(plugin) for plugin in plugins]
    try:
        resolved = resolve({**recipe, "plugins": named}, sets, trained=True)
    except InputError as error:
        # A plugin that was named and cannot be read has its own message.
        if any((problem.key or "").startswith("plugins") for problem in error.problems):
            raise
        gone = describe_missing(sources)
        if gone:
            raise InputError([Problem(text, where=str(path)) for text in gone]) from error
        # An option that is not known any more has its cause there.
        warn_of_changed_code(path, sources)
        raise
    warn_of_changed_code(path, sources)
    return resolved


def warn_of_changed_code(path: Path, sources: Sequence[Source]) -> None:
    """Print, a line each, which encodings have another code now than when a checkpoint was trained."""
    for text in describe_changes(sources) if is_first_process() else ():
        print(f"warning: {path}: {text}", file=sys.stderr)


def _changes_of_encoding(
    stored: dict[str, Any], recipe: Recipe, path: Path, sets: Sequence[str]
) -> dict[str, Any]:
    """What the sets change of the encoding, by dotted key.

    Results are filed under the run: they must be those of what was trained.

    Raises:
        InputError: changes that would make it another model, with all that may be changed for this run.
    """
    if not sets:
        return {}
    changed = recipe.as_dict()
    encoding = encoding_changes(stored["model"]["encoding"], changed["model"]["encoding"])
    refused = dict(encoding.refused)
    for key, old, new in diff(stored, changed):
        declared = differs(key)
        if not is_among(key, (ENCODING,)) and not declared.after_training:
            refused[key] = f"the run was trained with {old!r}, and {new!r} would make it another"
    if refused:
        may = ", ".join([*may_change_after_training(), *may_change(stored["model"]["encoding"])])
        problems = [Problem(why, key=key, where=str(path)) for key, why in refused.items()]
        problems[-1] = replace(
            problems[-1], message=f"{problems[-1].message}; after training only these can be set: {may}"
        )
        raise InputError(problems)
    return encoding.allowed


def load(
    path: str | Path,
    device: str = "cpu",
    plugins: str | Path | Sequence[str | Path] = (),
    sets: Sequence[str] = (),
) -> torch.nn.Module:
    """The trained model of a run or a checkpoint, ready to use: `logits = model(tokens)`.

    Args:
        path: a run folder (its last checkpoint is taken) or a checkpoint file.
        device: where to put it; a run made on a GPU loads on a CPU and the other way round.
        plugins: the Python file of an encoding that it was trained with, or several.
        sets: `key=value` changes that leave its weights as they are, such as `model.encoding=rerope`.

    Returns: a `zoo.models.transformer.Transformer` in evaluation mode.

    Raises:
        InputError: nothing usable there, or no such device here.
    """
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {str(device)!r} cannot be used here: {_first_line(error)}") from error
    named = [plugins] if isinstance(plugins, str | Path) else plugins
    return load_task(Path(path), sets, named).model.to(device)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:200]
