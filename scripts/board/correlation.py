"""Does the loss on text predict the score in a task? Rank correlation over encodings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from board.measured import DASH, SHOWN, Measured, png, table
from zoo.figures.style import RC, styles

BOOTSTRAP = 2000


def pairs_of(text: Measured, task: Measured, protocol: str | None = None) -> dict[str, tuple[float, float]]:
    """The loss on text and the score in a task, both at 4 times the trained length, of each encoding that
    has both."""
    both = {
        name: (text.at(name, 4, protocol), task.at(name, 4)) for name in dict.fromkeys(text.names.values())
    }
    return {
        name: (a["mean"], b[task.measure]) for name, (a, b) in both.items() if a is not None and b is not None
    }


def correlations(text: Measured, tasks: Sequence[Measured]) -> str:
    """Spearman's rank correlation over encodings between each text protocol and each task, with a 95 %
    interval by bootstrap over encodings."""
    protocols = [name for name in text.study.protocols if name != "repeats"]
    rows = [
        [protocol, *(_correlation(np.array([*pairs_of(text, task, protocol).values()])) for task in tasks)]
        for protocol in protocols
    ]
    return table(["protocol", *(one.study.name for one in tasks)], rows)


def correlation_figure(text: Measured, tasks: Sequence[Measured]) -> bytes:
    """Loss on text and score of each task, a point for each encoding, as PNG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(4, len(tasks))
    with rc_context(RC):
        figure = Figure(figsize=(2.4 * columns, 2.3 * math.ceil(len(tasks) / columns)), layout="constrained")
        grid = figure.subplots(
            math.ceil(len(tasks) / columns), columns, sharex=True, sharey=True, squeeze=False
        )
        for axes in grid.flat[len(tasks) :]:
            axes.set_axis_off()
        for axes, task in zip(grid.flat, tasks, strict=False):
            pairs = pairs_of(text, task)
            looks = styles(pairs)
            for name, point in pairs.items():
                axes.plot(*point, looks[name].marker, color=looks[name].color, markersize=3.5)
                if name in SHOWN:
                    axes.annotate(name, point, (2, 2), textcoords="offset points", fontsize=6)
            axes.set_title(task.study.name)
            axes.set_ylim(-0.03, 1.03)
        figure.supxlabel("text at 4x: bits per byte", fontsize=8)
        figure.supylabel("task at 4x", fontsize=8)
        return png(figure)


def _correlation(pairs: np.ndarray) -> str:
    if len(pairs) < 5:
        return DASH
    pairs = pairs * (-1, 1)  # a smaller loss is better
    rng = np.random.default_rng(0)
    drawn = [spearman(pairs[rng.integers(0, len(pairs), len(pairs))]) for _ in range(BOOTSTRAP)]
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return f"{spearman(pairs):.2f} ({low:.2f} to {high:.2f}), {len(pairs)} encodings"


def spearman(pairs: np.ndarray) -> float:
    """The correlation of the ranks, ties with their mean rank; NaN where all values are equal."""
    ranks = pd.DataFrame(pairs).rank().to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(ranks.T)[0, 1]) if len(np.unique(ranks[:, 0])) > 1 else math.nan
