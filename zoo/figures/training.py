"""Training curves of several runs, by step: losses, gradient norm, learning rate, and scores by length."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zoo.figures.style import GRID, styles
from zoo.runs.folder import METRICS
from zoo.runs.metrics_csv import read_metrics

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Logged = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""By the column of metrics.csv: the steps at which it was logged, and its finite values."""
POINTS = 1000
"""Of a line; a longer one is drawn as the means of this many groups of neighbours."""
KINDS = {
    "train/loss": "training loss (nats)",
    "val/loss": "validation loss (nats)",
    "train/gradient_norm": "gradient norm",
    "train/lr": "learning rate",
}


def read_logged(folder: Path) -> Logged:
    """The columns of a run's metrics.csv that are drawn: `KINDS`, and the scores of `evaluate.during`."""
    found = {}
    columns, rows = read_metrics(folder / METRICS)
    for column in [*KINDS, *(one for one in columns if one.startswith("lengths/"))]:
        pairs = np.array([(row["step"], row[column]) for row in rows if row.get(column)], dtype=float)
        pairs = pairs.reshape(-1, 2)[np.isfinite(pairs.reshape(-1, 2)[:, 1])]
        if len(pairs):
            found[column] = pairs[:, 0].astype(int), pairs[:, 1]
    return found


def training_curves(runs: Mapping[str, tuple[str, Logged]]) -> Figure:
    """A plot for each logged column, below each other.

    Args:
        runs: by name: the label of the run's encoding, which has a colour, and its logged values.
    """
    from plotly.subplots import make_subplots

    looks = styles(label for label, _ in runs.values())
    logged_by_any = {kind for _, logged in runs.values() for kind in logged}
    by_length = sorted(logged_by_any - {*KINDS}, key=lambda kind: int(kind.rpartition("/")[2]))
    kinds = [*(kind for kind in KINDS if kind in logged_by_any), *by_length]
    figure = make_subplots(
        rows=len(kinds), cols=1, shared_xaxes=True, vertical_spacing=min(0.05, 0.4 / len(kinds))
    )
    for row, kind in enumerate(kinds, 1):
        for name, (label, logged) in runs.items():
            if kind in logged:
                steps, values = thinned(*logged[kind])
                figure.add_scatter(
                    x=steps, y=values, name=escape(f"{label} ({name})"), legendgroup=name,
                    showlegend=kind == kinds[0], line=looks[label].line,
                    mode="lines+markers" if len(steps) < 30 else "lines", row=row, col=1,
                )  # fmt: skip
        title = KINDS.get(kind) or "{} at {}".format(*kind.split("/")[1:])
        figure.update_yaxes(title=title, automargin=True, exponentformat="power", row=row, col=1)
    figure.update_xaxes(title="step", row=len(kinds), col=1)
    figure.update_xaxes(gridcolor=GRID).update_yaxes(gridcolor=GRID)
    figure.update_layout(
        height=230 * len(kinds) + 60, plot_bgcolor="white", margin={"l": 60, "r": 10, "t": 20, "b": 10},
        legend={"orientation": "h", "yanchor": "top", "y": -0.1},
    )  # fmt: skip
    return figure


def thinned(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `POINTS` points: the last step of each group of neighbours, and the mean of their values."""
    if len(steps) <= POINTS:
        return steps, values
    groups = np.array_split(np.arange(len(steps)), POINTS)
    return steps[[group[-1] for group in groups]], np.array([values[group].mean() for group in groups])
