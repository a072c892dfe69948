"""Going on with a run: whether it can be, from where, and by which command."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any, Literal

from zoo.errors import InputError
from zoo.recipe import Recipe
from zoo.runs.card import read_card
from zoo.runs.checkpoint_file import read_checkpoint
from zoo.runs.code_source import recorded_sources
from zoo.runs.folder import BEST, CARD, LAST, RECIPE, RUNS, existing_run, find_run, validate_recipe_present
from zoo.runs.load import warn_of_changed_code
from zoo.runs.max_steps import max_steps_problem
from zoo.training.checkpoints.resume_checks import validate_same_run

Resume = bool | Literal["auto"]


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
    validate_same_run(folder, checkpoint, content, recipe)
    warn_of_changed_code(folder, recorded_sources(content.get("zoo_card")))
    problem = max_steps_problem(folder, content["hyper_parameters"]["recipe"], recipe, content["global_step"])
    if problem is not None:
        raise InputError(problem)
    return checkpoint, content


def resume_command(folder: Path) -> str:
    command = ["python", "-m", "zoo", "fit", "--recipe", str(folder / RECIPE), "--out", str(folder)]
    return shlex.join([*command, "--resume"])


def how_to_continue(folder: Path, saved_at: int) -> str:
    """The command that goes on with a run; `saved_at` is the step of its last checkpoint, 0 for none."""
    return f"{'continue' if saved_at else 'begin again'}: {resume_command(folder)}"


def _validate_nothing_saved(folder: Path) -> None:
    """To begin again would overwrite what a run has come to, and only its checkpoint be missing."""
    saved = None
    if os.path.lexists(folder / CARD):
        # One that cannot be read raises: it may be all that is left of a long run.
        steps = read_card(folder).get("steps")
        saved = f"{CARD} says that the run had saved {steps} steps" if steps else None
    if saved is None and os.path.lexists(folder / BEST):
        saved = _saved_best(folder)
    if saved:
        best = os.path.lexists(folder / BEST)
        instead = f", or copy {BEST.name} to {LAST.name} and continue from there" if best else ""
        raise InputError(
            f"{folder / LAST}: missing, and {saved}: put it back{instead}, or start anew in another folder"
        )


def _saved_best(folder: Path) -> str | None:
    """That the best checkpoint was not the first thing saved, in words. A kill between the first best one and
    the first last one leaves it with a card of no steps, which is written before the first step."""
    content = read_checkpoint(folder / BEST)
    step, stored = content["global_step"], content["hyper_parameters"]["recipe"].get("checkpoint")
    every = stored.get("every_n_steps") if isinstance(stored, dict) else None
    first = os.path.lexists(folder / CARD) and isinstance(every, int) and step <= every
    return None if first else f"{BEST.name} beside it is of step {step}"
