"""Going on with a run: whether it can be, from where, and by which command."""

from __future__ import annotations

import os
import shlex
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from zoo.data.source import DataSource
from zoo.errors import InputError, Problem, shorten
from zoo.recipe import Recipe
from zoo.recipe.diff import refused_on_resume
from zoo.runs.card import changed_data, read_card
from zoo.runs.checkpoint_file import alternatives, read_checkpoint
from zoo.runs.code_source import recorded_sources
from zoo.runs.folder import (
    BEST,
    CARD,
    LAST,
    RECIPE,
    RUNS,
    existing_run,
    find_run,
    max_steps_problem,
    stored_recipe,
    validate_recipe_present,
)
from zoo.runs.load import warn_of_changed_code

Resume = bool | Literal["auto"]

RESTORES = "lightning.pytorch.trainer.connectors.checkpoint_connector"
"""The module of Lightning that restores a run."""

SAME_ON_CARD = ("name", "encoding", "task", "data", "train_length", "seed", "init_from")
"""What a run's card and its checkpoint agree in, however old one of them is."""


def run_to_resume(recipe: Recipe, out: Path | None, resume: Resume) -> Path | None:
    """The folder of the run to go on with; None where a new one is to begin.

    Raises:
        InputError: `resume` is True and there is none, or it was made from another recipe.
    """
    if not resume:
        return None
    if find_run(recipe, out) is None:
        lost = out or RUNS / recipe.name
        if (lost / LAST).is_file():
            return lost  # its recipe is in the checkpoint too, and is compared there; it is written anew
        validate_recipe_present(lost)
        if resume == "auto":
            return None
    return existing_run(recipe, out)


def recipe_so_far(folder: Path | None) -> dict[str, Any] | None:
    """The recipe of a run that is resumed, as plain data; None where there is none."""
    if folder is None:
        return None
    if (folder / RECIPE).is_file():
        return stored_recipe(folder)
    return read_checkpoint(folder / LAST)["hyper_parameters"]["recipe"]


def resume_point(folder: Path, recipe: Recipe) -> tuple[Path | None, dict[str, Any] | None]:
    """The checkpoint to go on from and its content; None where the run stopped before its first and begins
    again.

    Raises:
        InputError: there was one and it is gone, it cannot be read, or `max_steps` make another run.
    """
    checkpoint = folder / LAST
    if not os.path.lexists(checkpoint):
        _validate_nothing_saved(folder)
        return None, None
    content = read_checkpoint(checkpoint)
    _validate_recipe(folder, content, recipe)
    _validate_card(folder, content)
    warn_of_changed_code(folder, recorded_sources(content["zoo_card"]))
    problem = max_steps_problem(folder, content["hyper_parameters"]["recipe"], recipe, content["global_step"])
    if problem is not None:
        raise InputError(problem)
    return checkpoint, content


def validate_same_data(checkpoint: Path, content: dict[str, Any], source: DataSource) -> None:
    """Raises InputError where a run would go on with other data than it has learned from so far."""
    differing = changed_data(content["zoo_card"], source)
    if differing:
        message = (
            f"{'; '.join(differing)} since {checkpoint} was saved: the run cannot be continued on other "
            f"data. Put the old text back (or name its folder with --set data.root=...), or start a new run"
        )
        raise InputError(Problem(message, key="data.root" if source.kind == "text" else "data"))


@contextmanager
def restoring(checkpoint: Path | None) -> Iterator[None]:
    """Raise InputError, with the path and the remedy, where Lightning cannot restore the checkpoint."""
    try:
        yield
    except Exception as error:
        modules = [frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)]
        if checkpoint is None or isinstance(error, InputError) or RESTORES not in modules:
            raise
        text = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"
        weights = f"A new run goes on from its weights with --set init_from={checkpoint}"
        message = f"{checkpoint}: cannot be continued: {text}. {weights}. {alternatives(checkpoint)}"
        raise InputError(message) from error


def resume_command(folder: Path) -> str:
    command = ["python", "-m", "zoo", "fit", "--recipe", str(folder / RECIPE), "--out", str(folder)]
    return shlex.join([*command, "--resume"])


def how_to_continue(folder: Path, saved_at: int) -> str:
    """The command that goes on with a run; `saved_at` is the step of its last checkpoint, 0 for none."""
    return f"{'continue' if saved_at else 'begin again'}: {resume_command(folder)}"


def _validate_recipe(folder: Path, content: dict[str, Any], recipe: Recipe) -> None:
    """Raises InputError for a checkpoint of another recipe, and so of another run."""
    where = RECIPE if (folder / RECIPE).is_file() else "the recipe given"
    stored, checkpoint = content["hyper_parameters"]["recipe"], str(folder / LAST)
    problems = [
        Problem(
            f"{shorten(repr(old))} in this checkpoint, and {shorten(repr(new))} in {where}", key, checkpoint
        )
        for key, old, new in refused_on_resume(stored, recipe)
    ]
    if problems:
        what = "it is of another run. Put this run's own checkpoint back, or continue the other run"
        raise InputError([*problems, Problem(what, where=checkpoint)])


def _validate_card(folder: Path, content: dict[str, Any]) -> None:
    """Compare the card of a run with that in its checkpoint.

    The card may lag behind: it is written after the checkpoint. Without one a new one is written.

    Raises:
        InputError: they are of different runs, or the card cannot be read.
    """
    checkpoint, own = folder / LAST, content.get("zoo_card")
    if own is None:
        raise InputError(
            f"{checkpoint}: cannot be continued: it holds no zoo_card, which records what it was trained on. "
            f"{alternatives(checkpoint)}"
        )
    if not (folder / CARD).exists():
        return
    remedy = f"; remove {CARD}: it is written anew from the checkpoint"
    card = read_card(folder, advice=remedy)
    differing = [key for key in SAME_ON_CARD if card.get(key) != own.get(key)]
    there, here = card["fingerprint"], own["fingerprint"]
    keys = ("corpus", "tokenizer")
    differing += [f"fingerprint.{key}" for key in keys if there.get(key) != here.get(key)]
    if differing:
        message = f"not the card of this run: {', '.join(differing)} differ from {checkpoint.name}{remedy}"
        raise InputError(Problem(message, where=str(folder / CARD)))


def _validate_nothing_saved(folder: Path) -> None:
    """Raises InputError where only the last checkpoint of a run is missing: to begin again would overwrite
    what the run has come to."""
    # A card that cannot be read raises: it may be all that is left of a long run. One of no steps is written
    # before the first step.
    steps = read_card(folder)["steps"] if os.path.lexists(folder / CARD) else None
    best = os.path.lexists(folder / BEST)
    if steps or (best and steps is None):
        saved = f"{CARD} says that it had saved {steps} steps" if steps else f"{BEST.name} lies beside it"
        instead = f", or copy {BEST.name} to {LAST.name} and continue from there" if best else ""
        raise InputError(
            f"{folder / LAST}: missing, and {saved}: put it back{instead}, or start anew in another folder"
        )
