"""Going on with a run: whether it can be, from where, and by which command."""

from __future__ import annotations

import shlex
from pathlib import Path

from zoo.errors import InputError, Problem
from zoo.recipe import Recipe
from zoo.runs.checkpoint import read_checkpoint, warn_of_changes
from zoo.runs.encoding_source import recorded_sources
from zoo.runs.folder import LAST, RECIPE


def resume_point(folder: Path, recipe: Recipe) -> Path:
    checkpoint = folder / LAST
    if not checkpoint.is_file():
        raise InputError(
            f"{folder}: the run stopped before its first checkpoint; there is nothing to continue. "
            f"Start it anew, without --resume, in another folder"
        )
    content = read_checkpoint(checkpoint)
    warn_of_changes(folder, recorded_sources(content.get("zoo_card")))
    done = content["global_step"]
    if done > recipe.trainer.max_steps:
        raise InputError(
            Problem(
                f"{recipe.trainer.max_steps} is below the {done} steps that the run has done already",
                key="trainer.max_steps",
                where=str(folder),
            )
        )
    return checkpoint


def resume_command(folder: Path) -> str:
    command = ["python", "-m", "zoo", "fit", "--recipe", str(folder / RECIPE), "--out", str(folder)]
    return shlex.join([*command, "--resume"])
