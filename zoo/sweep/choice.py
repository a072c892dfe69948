"""The choice among the values of a grid, for each encoding by its validation loss."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Sequence
from pathlib import Path

from zoo.files import atomic_write
from zoo.runs.folder import METRICS, TUNED
from zoo.runs.metrics_csv import read_metrics
from zoo.sweep.grid import Grid, Point, points
from zoo.sweep.plan import PlannedRun

LOSS = "val/loss"


def choose(
    runs: Sequence[PlannedRun], grid: Grid, failed: Collection[str]
) -> tuple[list[PlannedRun], list[str]]:
    """The runs of each encoding's best point, by the mean of the last validation losses over the seeds.

    Validation has the trained length. A point is not chosen where one of its runs failed. The folder of each
    chosen run gets a file by which `compare` treats runs that were tuned by the same grid alike.

    Returns: the runs, and a line of text for each encoding.
    """
    chosen, lines = [], []
    for encoding in dict.fromkeys(run.encoding for run in runs):
        losses: dict[Point, dict[int, float]] = {}
        for point in points(grid):
            own = [run for run in runs if (run.encoding, run.point) == (encoding, point)]
            if not any(run.name in failed for run in own):
                losses[point] = {run.seed: validation_loss(run.folder) for run in own}
        means = {point: statistics.fmean(of_seeds.values()) for point, of_seeds in losses.items()}
        best = min(means, key=means.__getitem__, default=None)
        for run in runs:
            if run.encoding == encoding and run.point == best:
                tuned = {
                    "grid": grid,
                    "chosen": best,
                    "by": f"{LOSS} at length {run.recipe.data.sequence_length}",
                    "losses": {
                        " ".join(point): {
                            seed: loss if loss < math.inf else None for seed, loss in own.items()
                        }
                        for point, own in losses.items()
                    },
                }
                atomic_write(run.folder / TUNED, json.dumps(tuned, indent=1) + "\n")
                chosen.append(run)
            elif run.encoding == encoding:
                (run.folder / TUNED).unlink(missing_ok=True)
        if best is not None:
            shown = ", ".join(f"{loss:.4g} at {' '.join(point)}" for point, loss in means.items())
            lines.append(f"{encoding}: {' '.join(best)} is chosen; validation loss {shown}")
    return chosen, lines


def validation_loss(folder: Path) -> float:
    """The last validation loss of a run; infinite where it diverged."""
    _, rows = read_metrics(folder / METRICS)
    losses = [float(row[LOSS]) for row in rows if row.get(LOSS)]
    return losses[-1] if losses and math.isfinite(losses[-1]) else math.inf
