"""The choice among the values of a grid, for each encoding by its validation loss."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.comparison.runs import VALIDATION, validation_losses
from zoo.files import atomic_write
from zoo.runs.folder import METRICS, TUNED
from zoo.runs.metrics_csv import read_metrics
from zoo.sweep.folder import KeptRun
from zoo.sweep.processes import note


def choose(runs: Sequence[KeptRun], failed: Collection[str]) -> dict[str, dict[str, Any]]:
    """The content of `tuned.json` for each encoding, with its best setting by the mean of the last validation
    losses over the seeds. Prints the choice.

    Validation has the trained length. A setting is not chosen where one of its runs failed.
    """
    losses: dict[str, dict[tuple[str, ...], dict[int, float]]] = {}
    lost = {(run.encoding, run.setting) for run in runs if run.name in failed}
    for run in runs:
        if (run.encoding, run.setting) not in lost:
            of_settings = losses.setdefault(run.encoding, {})
            of_settings.setdefault(run.setting, {})[run.seed] = validation_loss(run.folder)
    tuned = {}
    for encoding, of_settings in losses.items():
        means = {setting: statistics.fmean(own.values()) for setting, own in of_settings.items()}
        best = min(means, key=means.__getitem__)
        tuned[encoding] = {
            "grid": runs[0].study.grid,
            "chosen": best,
            "by": f"{VALIDATION} at length {runs[0].recipe.data.sequence_length}",
            "losses": {
                " ".join(setting): {seed: loss if loss < math.inf else None for seed, loss in own.items()}
                for setting, own in of_settings.items()
            },
        }
        shown = ", ".join(f"{loss:.4g} at {' '.join(setting)}" for setting, loss in means.items())
        note(f"{encoding}: {' '.join(best)} is chosen; validation loss {shown}")
    return tuned


def record(runs: Iterable[KeptRun], tuned: Mapping[str, dict[str, Any]]) -> None:
    """Write the choice into the folders of the chosen runs, and take an earlier one back from the others.

    By this file `compare` treats runs that were tuned by the same grid alike.
    """
    for run in runs:
        if (choice := tuned.get(run.encoding)) and run.setting == choice["chosen"]:
            atomic_write(run.folder / TUNED, json.dumps(choice, indent=1) + "\n")
        else:
            (run.folder / TUNED).unlink(missing_ok=True)


def validation_loss(folder: Path) -> float:
    """The last validation loss of a run; infinite where it diverged."""
    losses = [*validation_losses(read_metrics(folder / METRICS)[1]).values()]
    return losses[-1] if losses and math.isfinite(losses[-1]) else math.inf
