"""One run of a sweep: its folder, its command, and whether it is finished."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.errors import InputError, Problem
from zoo.evaluation.measurement import Measurement
from zoo.evaluation.store import read_measurements
from zoo.recipe import Recipe
from zoo.runs.card import read_card
from zoo.runs.folder import CARD, LAST, RECIPE, existing_run, stored_recipe, validate_free
from zoo.runs.max_steps import max_steps_problem


@dataclass(frozen=True)
class Run:
    """One cell of the matrix: what it trains, and where."""

    name: str
    label: str
    seed: int
    recipe: Recipe
    file: Path
    sets: tuple[str, ...]
    folder: Path

    @property
    def log(self) -> Path:
        """Where the run's process writes what it prints."""
        return self.folder.parent / "logs" / f"{self.name}.log"

    def command(self, python: str = "python") -> list[str]:
        """The command that starts the run, resumes it, or only evaluates it if it is trained."""
        sets = [part for text in self.sets for part in ("--set", text)]
        command = [python, "-m", "zoo", "fit", "--recipe", str(self.file), *sets]
        return [*command, "--out", str(self.folder), "--resume", "auto"]

    def command_line(self) -> str:
        """The command as one line for a shell."""
        return shlex.join(self.command())

    def is_finished(self) -> bool:
        """Whether the last checkpoint has all steps, and was evaluated by every protocol and at every length.

        Raises:
            InputError: results that cannot be read.
        """
        measured = [
            one
            for one in (read_measurements(self.folder) if (self.folder / LAST).is_file() else [])
            if Path(one.checkpoint) == LAST and not one.changed and one.step == self.recipe.trainer.max_steps
        ]
        wanted = self.recipe.evaluate
        of = {name: [one for one in measured if one.protocol == name] for name in wanted.protocols}
        return all(covers(own, wanted.lengths) for own in of.values())

    def check_folder(self) -> None:
        """Raises InputError for a folder where `command` cannot begin the run, nor go on with it."""
        if not (self.folder / RECIPE).is_file():
            validate_free(self.folder)
            return
        problems = []
        try:
            existing_run(self.recipe, self.folder)
        except InputError as error:
            problems += error.problems
        steps = read_card(self.folder)["steps"] if os.path.lexists(self.folder / CARD) else 0
        problems.append(max_steps_problem(self.folder, stored_recipe(self.folder), self.recipe, steps))
        if any(problems):
            advice = "it holds a run of another recipe: move it away, or choose another --out"
            raise InputError([*filter(None, problems), Problem(advice, where=str(self.folder))])


def covers(measured: Sequence[Measurement], lengths: Sequence[int]) -> bool:
    """Whether the measurements by one protocol have a row, or a note, for each of some lengths."""
    windows = {one.parameters.get("window") for one in measured}
    # One pass over the longest window answers for all lengths: its rows are of context lengths.
    return max(lengths) in windows or {row.length for one in measured for row in one.rows} >= {*lengths}
