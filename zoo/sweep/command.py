"""The command of a run, as the sweep starts it and as a user does."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.recipe import to_yaml_line
from zoo.sweep.matrix import Run
from zoo.sweep.standing import State

PYTHON = ("python", "-m", "zoo")


def fit_command(run: Run, state: State) -> list[str]:
    """What trains a run, goes on with it, or evaluates it once it is trained.

    `fit --resume` of a trained run does no step more and evaluates by the recipe as it is now.
    """
    sets = [part for text in run.sets for part in ("--set", text)]
    resume = ["--resume"] if state in (State.UNFINISHED, State.TRAINED) else []
    return [*PYTHON, "fit", "--recipe", str(run.file), *sets, "--out", str(run.folder), *resume]


def sweep_command(
    file: Path,
    encodings: Sequence[Any],
    seeds: Sequence[int],
    sets: Sequence[str],
    out: Path,
    jobs: int | None,
) -> list[str]:
    """The sweep itself."""
    command = [*PYTHON, "sweep", str(file), "--encodings", to_yaml_line(list(encodings))[1:-1]]
    command += ["--seeds", ",".join(map(str, seeds))]
    command += [part for text in sets for part in ("--set", text)]
    return [*command, "--out", str(out), *(["--jobs", str(jobs)] if jobs else [])]


def compare_command(runs: list[Run], out: Path) -> list[str]:
    """What compares finished runs."""
    return [*PYTHON, "compare", *(str(run.folder) for run in runs), "--out", str(out)]


def with_this_python(command: list[str]) -> list[str]:
    """The same with the interpreter that is running: `python` may be another, or none."""
    return [sys.executable, *command[1:]]


def as_text(command: list[str]) -> str:
    """One line for a shell."""
    return shlex.join(command)
