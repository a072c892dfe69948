"""A run of a sweep whose folder is kept: its command, and whether it is finished."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zoo.errors import InputError, Problem, collect
from zoo.evaluation.measurement import Measurement
from zoo.evaluation.store import read_measurements
from zoo.runs.card import steps_done
from zoo.runs.folder import (
    LAST,
    RECIPE,
    max_steps_problem,
    stored_recipe,
    validate_free,
    validate_same_recipe,
)
from zoo.sweep.processes import Command
from zoo.sweep.study import Entry


class KeptRun(Entry):
    """An entry with a run folder in `out`."""

    @property
    def name(self) -> str:
        return self.study.run_name(self.encoding, self.seed, self.setting)

    @property
    def folder(self) -> Path:
        return self.out / self.name

    @property
    def command(self) -> Command:
        """The command that starts the run, resumes it, or only evaluates it if it is trained."""
        sets = [part for text, _ in self.changes for part in ("--set", text)]
        words = ["fit", "--recipe", self.study.base, *sets, "--out", str(self.folder), "--resume", "auto"]
        return Command(self.name, words, self.out / "logs" / f"{self.name}.log")

    @property
    def is_finished(self) -> bool:
        """Whether the last checkpoint has all steps, and was evaluated by every protocol and at every length.

        Raises:
            InputError: results that cannot be read.
        """
        if not (self.folder / LAST).is_file():
            return False
        wanted, steps = self.recipe.evaluate, self.recipe.trainer.max_steps
        measured: dict[str, list[Measurement]] = {name: [] for name in wanted.protocols}
        for one in read_measurements(self.folder):
            if Path(one.checkpoint) == LAST and not one.changed and one.step == steps:
                measured.setdefault(one.protocol, []).append(one)
        return all(covers(measured[name], wanted.lengths) for name in wanted.protocols)

    def validate_folder(self) -> None:
        """Raises InputError for a folder where `command` can neither begin nor resume the run."""
        if not (self.folder / RECIPE).is_file():
            validate_free(self.folder)
            return
        problems: list[Problem | None] = []
        stored = stored_recipe(self.folder)
        with collect(problems):
            validate_same_recipe(stored, self.recipe, self.folder / RECIPE)
        problems.append(max_steps_problem(self.folder, stored, self.recipe, steps_done(self.folder)))
        if any(problems):
            advice = "it holds a run of another recipe: move it away, or choose another --out"
            raise InputError([*filter(None, problems), Problem(advice, where=str(self.folder))])


def covers(measured: Sequence[Measurement], lengths: Sequence[int]) -> bool:
    """Whether the measurements by one protocol have a row, or a note, for each of some lengths."""
    windows = {one.parameters.get("window") for one in measured}
    # One pass over the longest window answers for all lengths: its rows are of context lengths.
    return {row.length for one in measured for row in one.rows} >= {*lengths} or max(lengths) in windows
