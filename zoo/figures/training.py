"""Panels of training curves: the logged values of several runs on the same axes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from zoo.figures.grid import Data, Panel
from zoo.figures.plots import LEGEND
from zoo.figures.style import Style, styles
from zoo.runs.folder import METRICS
from zoo.runs.metrics_csv import read_metrics

Logged = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""By the column of metrics.csv: the steps at which it was logged, and its finite values."""
POINTS = 1000
"""Of a line; a longer one is drawn as the means of this many groups of neighbours."""
KINDS = {
    "train/loss": ("Training loss", "nats per target", False, "Loss of the batch of each logged step."),
    "val/loss": ("Validation loss", "nats per target", False, "Loss on the validation split."),
    "train/gradient_norm": (
        "Norm of the gradient",
        "before clipping",
        True,
        "A spike that stays is an instability.",
    ),
    "train/lr": (
        "Learning rate",
        "of the first group",
        False,
        "The schedule of comparable runs is the same.",
    ),
}


def read_logged(folder: Path) -> Logged:
    """The columns of a run's metrics.csv that are drawn."""
    found = {}
    _, rows = read_metrics(folder / METRICS)
    for column in KINDS:
        pairs = np.array([(row["step"], row[column]) for row in rows if row.get(column)], dtype=float)
        pairs = pairs.reshape(-1, 2)[np.isfinite(pairs.reshape(-1, 2)[:, 1])]
        if len(pairs):
            found[column] = pairs[:, 0].astype(int), pairs[:, 1]
    return found


def training_panels(runs: Mapping[str, tuple[str, Logged]]) -> list[Panel]:
    """Panels of the losses, the norm of the gradient and the learning rate.

    Args:
        runs: by name: the label of the run's encoding, which has a colour, and its logged values.
    """
    looks = styles(label for label, _ in runs.values())
    panels = []
    for column, (title, unit, logarithmic, caption) in KINDS.items():
        data, drawn = {}, {}
        for name, (label, logged) in runs.items():
            if column in logged:
                data[f"{name}: step"], data[name] = thinned(*logged[column])
                drawn[name] = looks[label]
        if drawn:
            draw = partial(_lines, drawn=drawn, unit=unit, logarithmic=logarithmic)
            panels.append(Panel(column, title, caption, data, draw))
    return panels


def thinned(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `POINTS` points: the last step of each group of neighbours and their mean."""
    if len(steps) <= POINTS:
        return steps, values
    groups = np.array_split(np.arange(len(steps)), POINTS)
    return steps[[group[-1] for group in groups]], np.array([values[group].mean() for group in groups])


def _lines(axes: Axes, data: Data, drawn: Mapping[str, Style], unit: str, logarithmic: bool) -> None:
    for name, look in drawn.items():
        steps = data[f"{name}: step"]
        style = {"color": look.color, "linestyle": look.linestyle, "linewidth": 1.1, "markersize": 3}
        axes.plot(steps, data[name], marker=look.marker if len(steps) < 30 else None, label=name, **style)
    if logarithmic and all((data[name] > 0).any() for name in drawn):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
        axes.yaxis.set_minor_formatter(lambda value, _: f"{value:.2g}")
    axes.set_xlabel("step")
    axes.set_ylabel(unit)
    axes.legend(**LEGEND)
