"""The choice among the values of a grid, for each encoding by its validation loss."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.files import atomic_write
from zoo.runs.folder import METRICS, TUNED
from zoo.runs.metrics_csv import read_metrics
from zoo.sweep.grid import Grid, Point, points
from zoo.sweep.plan import PlannedRun

LOSS = "val/loss"


def choose(
    runs: Sequence[PlannedRun], grid: Grid, failed: Collection[str]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The best point of each encoding, by the mean of the last validation losses over the seeds.

    Validation has the trained length. A point is not chosen where one of its runs failed.

    Returns: the content of `tuned.json` for each encoding, and a line of text for each.
    """
    tuned, lines = {}, []
    for encoding in dict.fromkeys(run.encoding for run in runs):
        losses: dict[Point, dict[int, float]] = {}
        for point in points(grid):
            own = [run for run in runs if (run.encoding, run.point) == (encoding, point)]
            if not any(run.name in failed for run in own):
                losses[point] = {run.seed: validation_loss(run.folder) for run in own}
        means = {point: statistics.fmean(of_seeds.values()) for point, of_seeds in losses.items()}
        best = min(means, key=means.__getitem__, default=None)
        if best is not None:
            tuned[encoding] = {
                "grid": grid,
                "chosen": best,
                "by": f"{LOSS} at length {runs[0].recipe.data.sequence_length}",
                "losses": {
                    " ".join(point): {seed: loss if loss < math.inf else None for seed, loss in own.items()}
                    for point, own in losses.items()
                },
            }
            shown = ", ".join(f"{loss:.4g} at {' '.join(point)}" for point, loss in means.items())
            lines.append(f"{encoding}: {' '.join(best)} is chosen; validation loss {shown}")
    return tuned, lines


def record(runs: Iterable[PlannedRun], tuned: Mapping[str, dict[str, Any]]) -> None:
    """Write the choice into the folders of the chosen runs, and take an earlier one back from the others.

    By this file `compare` treats runs that were tuned by the same grid alike.
    """
    for run in runs:
        if (choice := tuned.get(run.encoding)) and run.point == choice["chosen"]:
            atomic_write(run.folder / TUNED, json.dumps(choice, indent=1) + "\n")
        else:
            (run.folder / TUNED).unlink(missing_ok=True)


def validation_loss(folder: Path) -> float:
    """The last validation loss of a run; infinite where it diverged."""
    _, rows = read_metrics(folder / METRICS)
    losses = [float(row[LOSS]) for row in rows if row.get(LOSS)]
    return losses[-1] if losses and math.isfinite(losses[-1]) else math.inf
