"""`zoo evaluate`: trained models in, scored at lengths they never saw; tables, plots and a page out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.errors import RunError, printable
from zoo.evaluation.load import LoadedRun, load_runs
from zoo.evaluation.measure import measure
from zoo.evaluation.measurement import Measurement, flat_rows
from zoo.evaluation.store import EVALUATION
from zoo.launch.ranks import is_distributed
from zoo.launch.team import Team, join
from zoo.reports.commands import evaluate_command
from zoo.reports.console import terminal
from zoo.reports.run_report import results_text, store_results


@dataclass(frozen=True)
class Request:
    """What is to be evaluated, and how; see `evaluate`."""

    paths: Sequence[Path]
    lengths: Sequence[int] | None = None
    protocols: Sequence[str] | None = None
    sets: Sequence[str] = ()
    devices: int = 1

    def load(self) -> list[LoadedRun]:
        return load_runs(self.paths, self.lengths, self.protocols, self.sets)

    def command(self, paths: Sequence[Path]) -> str:
        """What evaluates some of the paths in the same way, for a shell."""
        devices = ["--devices", str(self.devices)] if self.devices > 1 else []
        return evaluate_command(map(str, paths), self.protocols, self.lengths, self.sets, devices)


@dataclass
class _Progress:
    """What an evaluation has come to: measurements with the run that each is of, the paths that are done, the
    folders that hold results of it."""

    measured: list[tuple[LoadedRun, Measurement]] = field(default_factory=list)
    done: list[Path] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)


def evaluate(
    paths: Sequence[Path],
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    sets: Sequence[str] = (),
    devices: int = 1,
) -> list[dict[str, Any]]:
    """Evaluate runs or checkpoints, store each one's results beside it, and print them in tables.

    Args:
        paths: run folders or checkpoint files.
        lengths: in tokens; by default those of each recipe.
        protocols: names; by default those of each recipe.
        sets: `key=value` changes to the recipes, for example where the data lies, or of an encoding what may
            change after training; such measurements are kept beside those of the encoding as it was trained.
        devices: how many share the work. For each further one the command is started again; those that
            torchrun and SLURM have started are all taken.

    Returns: the rows, as in `lengths.json`.

    Raises:
        InputError: a path, a protocol or a change that cannot be used, data of another tokenizer, or a folder
            that takes no results.
        RunError: a process that shared the work has ended, or nothing at all could be measured.
        KeyboardInterrupt: stopped on demand; its text says what is kept, and how to go on.
    """
    request, progress = Request(paths, lengths, protocols, sets, devices), _Progress()
    try:
        # Processes that were started together meet first, so that one of them reports what is wrong.
        runs = None if is_distributed() else request.load()
        with join(devices, runs[0].task.recipe.trainer.accelerator if runs else "auto") as team:
            runs = runs or request.load()
            try:
                for run in runs:
                    _evaluate(run, request, team, progress)
            finally:
                # What was measured is shown, even if it cannot be stored or a later run fails.
                if team.rank == 0:
                    _print_results(progress, lengths or ())
            if team.rank == 0:
                print(
                    f"results, tables, plots and a page (index.html): {', '.join(progress.folders)}",
                    flush=True,
                )
    except KeyboardInterrupt:
        rest = request.command([path for path in paths if path not in progress.done] or paths)
        kept = f"what was measured is kept in {', '.join(progress.folders)}"
        kept = kept if progress.folders else "nothing was written"
        raise KeyboardInterrupt(f"interrupted; {kept}; measure the rest: {rest}") from None
    rows = flat_rows(measurement for _, measurement in progress.measured)
    if team.rank == 0 and all("note" in row for row in rows):
        raise RunError(f"nothing could be measured: {'; '.join(dict.fromkeys(row['note'] for row in rows))}")
    return rows


def _evaluate(run: LoadedRun, request: Request, team: Team, progress: _Progress) -> None:
    def save(measured: list[Measurement]) -> None:
        progress.measured += [(run, measurement) for measurement in measured]
        if team.rank == 0:
            store_results(run.folder, measured)
            shown = _shortest(run.folder / EVALUATION)
            progress.folders += [shown] if shown not in progress.folders else []

    team.use(run.task.recipe.trainer.accelerator)
    measure(
        run.task, run.source, run.folder, run.checkpoint, request.lengths, request.protocols, team, save
    )  # fmt: skip
    # The memory of the next one is measured without this one.
    run.task.cpu()
    progress.done.append(run.path)


def _print_results(progress: _Progress, lengths: Sequence[int]) -> None:
    """Rows in the order in which their lengths were asked for."""
    order = {length: index for index, length in enumerate(lengths)}
    several = len({run.folder.resolve() for run, _ in progress.measured}) > 1
    # Runs of one recipe may differ in what --set gave: only their folders tell them apart.
    rows = [
        row | ({"run": run.name} if several else {})
        for run, measurement in progress.measured
        for row in sorted(measurement.flat(units=True), key=lambda row: order.get(row["length"], len(order)))
    ]
    if rows:
        print(results_text(rows, *terminal()), flush=True)


def _shortest(folder: Path) -> str:
    """A folder as it is named shortest: relative to where the user stands, or in full."""
    return printable(min(str(folder), os.path.relpath(folder), key=len))
