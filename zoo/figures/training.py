"""How trainings went: what was logged, step by step, of several runs on the same axes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from zoo.figures.figure import Column, Figure
from zoo.figures.panel import Data, Limits, Panel
from zoo.figures.style import Style, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Logged = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""By the column of metrics.csv: the steps at which it was logged, and its values."""
POINTS = 1000
"""Of a line; of more, the means of as many groups of neighbours are drawn."""
KINDS = {
    "train/loss": ("Training loss", "nats per target", False, "Loss of each logged step's own batch."),
    "val/loss": ("Validation loss", "nats per target", False, "Loss on the validation split."),
    "train/gradient_norm": (
        "Norm of the gradient", "before clipping", True,
        "A spike that stays is an instability; a slow fall is usual.",
    ),
    "train/lr": ("Learning rate", "of the first group", False, "The schedule: the same where runs compare."),
}  # fmt: skip


def training_figure(runs: Mapping[str, tuple[str, Logged]]) -> Figure:
    """Panels of what runs logged: losses, the norm of the gradient, the learning rate.

    Args:
        runs: by name: the label of the run's encoding, which decides its colour, and what it logged.
    """
    looks = styles(label for label, _ in runs.values())
    panels = []
    for column, (title, unit, logarithmic, caption) in KINDS.items():
        data, drawn = {}, {}
        for name, (label, logged) in runs.items():
            if column in logged and len(logged[column][0]):
                data[f"{name}: step"], data[name] = thinned(*logged[column])
                drawn[name] = looks[label]
        if drawn:
            paint = partial(_lines, drawn=drawn, unit=unit, logarithmic=logarithmic)
            panels.append(Panel(column, title, caption, data, paint))
    return Figure([Column("training", panels)], "Training")


def thinned(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `POINTS` points: of more, the last step of each group of neighbours and their mean."""
    if len(steps) <= POINTS:
        return steps, values
    groups = np.array_split(np.arange(len(steps)), POINTS)
    return steps[[group[-1] for group in groups]], np.array([values[group].mean() for group in groups])


def _lines(
    axes: Axes,
    data: Data,
    limits: Limits | None,
    drawn: Mapping[str, Style],
    unit: str,
    logarithmic: bool,
) -> None:
    for name, look in drawn.items():
        steps = data[f"{name}: step"]
        few = look.marker if len(steps) < 30 else None
        axes.plot(
            steps, data[name], color=look.color, linestyle=look.linestyle, linewidth=1.1, marker=few,
            markersize=3, label=name,
        )  # fmt: skip
    if logarithmic and all((data[name] > 0).any() for name in drawn):
        axes.set_yscale("log")
        for axis_ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            axis_ticks(lambda value, _: f"{value:.2g}")
    axes.set_xlabel("step")
    axes.set_ylabel(unit)
    axes.legend(fontsize=6, frameon=False)
