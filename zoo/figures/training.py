"""Training curves of several runs, by step: losses, speed, and scores by length."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from zoo.figures.style import stacked, styles
from zoo.runs.folder import METRICS
from zoo.runs.metrics_csv import read_metrics

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

POINTS = 1000
"""Points of a line at most; a longer one is drawn as the means of this many groups of neighbours."""
KINDS = {
    "train/loss": "training loss (nats)",
    "val/loss": "validation loss (nats)",
    "train/tokens_per_second": "tokens per second",
}


def read_logged(folder: Path) -> pd.DataFrame:
    """A run's metrics.csv by step, NaN where a column was not logged."""
    columns, rows = read_metrics(folder / METRICS)
    frame = pd.DataFrame(rows, columns=columns or ["step"]).apply(pd.to_numeric, errors="coerce")
    return frame.set_index("step")


def training_curves(runs: Mapping[str, tuple[str, pd.DataFrame]]) -> Figure | None:
    """A plot for each of `KINDS` and for the scores of `evaluate.during` at each length, below each other;
    None where nothing was logged.

    Args:
        runs: by name: the label of the run's encoding, which has a colour, and its logged values.
    """
    looks = styles(label for label, _ in runs.values())
    logged = {kind for _, frame in runs.values() for kind in frame if frame[kind].notna().any()}
    by_length = [kind for kind in logged if kind.startswith("lengths/")]
    by_length.sort(key=lambda kind: int(kind.rpartition("/")[2]))
    kinds = [*(kind for kind in KINDS if kind in logged), *by_length]
    if not kinds:
        return None
    figure = stacked([1.0] * len(kinds), min(0.05, 0.4 / len(kinds)))
    for row, kind in enumerate(kinds, 1):
        for name, (label, frame) in runs.items():
            line = thinned(frame.get(kind, pd.Series(dtype=float)))
            if len(line):
                figure.add_scatter(
                    x=line.index, y=line, name=escape(f"{label} ({name})"), legendgroup=name,
                    showlegend=kind == kinds[0], line=looks[label].line,
                    mode="lines+markers" if len(line) < 30 else "lines", row=row, col=1,
                )  # fmt: skip
        title = KINDS.get(kind) or "{} at {}".format(*kind.split("/")[1:])
        figure.update_yaxes(title=title, exponentformat="power", row=row, col=1)
    figure.update_xaxes(title="step", row=len(kinds), col=1)
    return figure.update_layout(height=230 * len(kinds) + 60, legend_y=-0.1)


def thinned(values: pd.Series) -> pd.Series:
    """The finite values by step; of many, the means of `POINTS` groups of neighbours, at their last steps."""
    finite = values[np.isfinite(values)]
    if len(finite) <= POINTS:
        return finite
    groups = finite.reset_index().groupby(np.arange(len(finite)) * POINTS // len(finite))
    return groups.agg({"step": "last", values.name: "mean"}).set_index("step")[values.name]
