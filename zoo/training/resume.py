"""Resuming a run: whether it can be, from where, and by which command."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any, Literal

from zoo.data.source import DataSource
from zoo.errors import InputError, Problem
from zoo.recipe import Recipe
from zoo.runs.card import changed_data, read_card
from zoo.runs.checkpoint_file import alternatives, read_checkpoint
from zoo.runs.code_source import recorded_sources
from zoo.runs.folder import (
    CARD,
    LAST,
    RECIPE,
    existing_run,
    find_run,
    max_steps_problem,
    validate_same_recipe,
)
from zoo.runs.load import warn_of_changed_code

Resume = bool | Literal["auto"]


def run_to_resume(recipe: Recipe, out: Path | None, resume: Resume) -> Path | None:
    """The folder of the run to continue; None where a new one begins.

    Raises InputError if `resume` is True without a run, or the run was made from another recipe.
    """
    if not resume or (resume == "auto" and find_run(recipe, out) is None):
        return None
    return existing_run(recipe, out)


def resume_point(folder: Path, recipe: Recipe) -> tuple[Path | None, dict[str, Any] | None]:
    """The last checkpoint and its content; None for a run that stopped before its first one.

    Raises InputError for a checkpoint that is missing, cannot be read, is of another recipe, or does not
    allow this `max_steps`.
    """
    checkpoint = folder / LAST
    if not os.path.lexists(checkpoint):
        _validate_nothing_saved(folder)
        return None, None
    content = read_checkpoint(checkpoint)
    stored = content["hyper_parameters"]["recipe"]
    validate_same_recipe(stored, recipe, checkpoint)
    if "zoo_card" not in content:
        text = "cannot be continued: it has no zoo_card, the record of its training"
        raise InputError(f"{checkpoint}: {text}. {alternatives(checkpoint)}")
    warn_of_changed_code(folder, recorded_sources(content["zoo_card"]))
    problem = max_steps_problem(folder, stored, recipe, content["global_step"])
    if problem is not None:
        raise InputError(problem)
    return checkpoint, content


def validate_same_data(checkpoint: Path, content: dict[str, Any], source: DataSource) -> None:
    """Raises InputError where the data differs from the data of the checkpoint's training."""
    differing = changed_data(content["zoo_card"], source)
    if differing:
        message = (
            f"{'; '.join(differing)} since {checkpoint} was saved: the run cannot be continued on other "
            f"data. Restore the text (or give its folder with --set data.root=...), or start a new run"
        )
        raise InputError(Problem(message, key="data.root" if source.kind == "text" else "data"))


def how_to_continue(folder: Path, saved_at: int) -> str:
    """The command that continues a run; `saved_at` is the step of its last checkpoint, 0 for none."""
    recipe, out = (shlex.quote(str(path)) for path in (folder / RECIPE, folder))
    command = f"python -m zoo fit --recipe {recipe} --out {out} --resume"
    return f"{'continue' if saved_at else 'begin again'}: {command}"


def _validate_nothing_saved(folder: Path) -> None:
    """Raises InputError if the last checkpoint of a run is missing: a new start would overwrite the run."""
    # A card of no steps is written before the first step.
    if os.path.lexists(folder / CARD) and read_card(folder)["steps"]:
        raise InputError(f"{folder / LAST}: missing. {alternatives(folder / LAST)}")
