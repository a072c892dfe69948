"""Values of recipe keys that a sweep tries with every encoding, and the choice among them by validation."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import InputError, Problem
from zoo.files import atomic_write
from zoo.recipe import Recipe, to_yaml_line
from zoo.recipe.tree import read_value
from zoo.runs.folder import METRICS, TUNED
from zoo.runs.metrics_csv import read_metrics

if TYPE_CHECKING:
    from zoo.sweep.plan import Run

LOSS = "val/loss"

Grid = Mapping[str, Sequence[Any]]
"""The values of each key; a run has one of each."""
Point = tuple[str, ...]
"""One of the combinations, as `key=value` texts."""


def read_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The grid of texts such as `optimizer.lr=1e-3,3e-3`. Raises InputError for one of another form."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, _, values = text.partition("=")
        grid[key.strip()] = read_value(f"[{values}]", f"--grid {text}")
        if not key.strip() or len(grid[key.strip()]) < 2:
            message = "not a key with several values, as in optimizer.lr=1e-3,3e-3"
            raise InputError(Problem(message, where=f"--grid {text}"))
    return grid


def points(grid: Grid) -> list[Point]:
    """All combinations; one that sets nothing where there is no grid."""
    keys = [[f"{key}={to_yaml_line(value)}" for value in values] for key, values in grid.items()]
    return list(itertools.product(*keys))


def validate_selectable(recipe: Recipe) -> None:
    """Raises InputError where the runs of a recipe would have no validation loss to choose by."""
    if "csv" not in recipe.logging:
        raise InputError(Problem("--grid reads the validation loss in metrics.csv: add csv", key="logging"))
    if recipe.trainer.limit_val_batches == 0:
        message = "--grid chooses by the validation loss: take another number, or null for all"
        raise InputError(Problem(message, key="trainer.limit_val_batches"))


def choose(runs: Sequence[Run], grid: Grid, failed: Collection[str]) -> tuple[list[Run], list[str]]:
    """The runs of each encoding's best point, by the mean of the last validation losses over the seeds.

    Validation has the trained length. A point is not chosen where one of its runs failed. The folder of each
    chosen run gets a file by which `compare` treats runs that were tuned by the same grid alike.

    Returns: the runs, and a line of text for each encoding.
    """
    chosen, lines = [], []
    for encoding in dict.fromkeys(run.encoding for run in runs):
        losses: dict[Point, float] = {}
        for point in points(grid):
            own = [run for run in runs if (run.encoding, run.point) == (encoding, point)]
            if not any(run.name in failed for run in own):
                losses[point] = statistics.fmean(validation_loss(run.folder) for run in own)
        best = min(losses, key=losses.__getitem__, default=None)
        for run in runs:
            if run.encoding == encoding and run.point == best:
                tuned = {
                    "grid": grid,
                    "chosen": best,
                    "by": f"{LOSS} at length {run.recipe.data.sequence_length}",
                }
                atomic_write(run.folder / TUNED, json.dumps(tuned, indent=1) + "\n")
                chosen.append(run)
            elif run.encoding == encoding:
                (run.folder / TUNED).unlink(missing_ok=True)
        if best is not None:
            shown = ", ".join(f"{loss:.4g} at {' '.join(point)}" for point, loss in losses.items())
            lines.append(f"{encoding}: {' '.join(best)} is chosen; validation loss {shown}")
    return chosen, lines


def validation_loss(folder: Path) -> float:
    """The last validation loss of a run; infinite where it diverged."""
    _, rows = read_metrics(folder / METRICS)
    losses = [float(row[LOSS]) for row in rows if row.get(LOSS)]
    return losses[-1] if losses and math.isfinite(losses[-1]) else math.inf
