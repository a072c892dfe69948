"""Does the change of the loss on text predict the score in a task? Rank correlations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from board.figures import family_color
from board.measured import REFERENCE, Measured
from board.text import DASH, png, table
from zoo.figures.style import RC

KEPT = 0.05
"""An encoding keeps its loss on text if that rises by at most this share at 4 times the trained length."""
TIED = 0.75
"""With this share of scores at the floor there is nothing to correlate."""


def pairs_of(
    text: Measured, scores: pd.DataFrame, protocol: str | None = None
) -> dict[str, tuple[float, float]]:
    """The loss on text at 4 times the trained length as a multiple of that at the trained length, and the
    score in a task, of each encoding of which most seeds learned the task."""
    means = scores.groupby("encoding")[["score", "learned"]].mean()
    pairs = {}
    for name in (name for name in text.encodings if name in means.index):
        loss = [text.at(name, factor, protocol) for factor in (1, 4)]
        if all(one is not None for one in loss) and means.loc[name, "learned"] > 0.5:
            pairs[name] = loss[1]["mean"] / loss[0]["mean"], float(means.loc[name, "score"])
    return pairs


def correlations(text: Measured, tasks: Mapping[str, pd.DataFrame], protocols: Sequence[str]) -> str:
    """Spearman's rank correlation over encodings between the change on text and the score in each task."""
    columns = {}
    for protocol in protocols:
        every = [pairs_of(text, scores, protocol) for scores in tasks.values()]
        kept = [{name: pair for name, pair in own.items() if pair[0] <= 1 + KEPT} for own in every]
        for label, some in ((protocol, every), (f"{protocol}, kept", kept)):
            columns[label] = [_correlation(own, {name: text.family(name) for name in own}) for own in some]
    rows = [row for row in zip(tasks, *columns.values(), strict=True) if {*row[1:]} != {DASH}]
    return table(["task", *columns], rows)


def correlation_figure(text: Measured, tasks: Mapping[str, pd.DataFrame]) -> bytes:
    """The score of each task over the change of the loss on text, a point for each encoding, as PNG. The
    encodings whose two ranks differ most are named."""
    every = {
        task: pairs for task, scores in tasks.items() if _varied(pairs := pairs_of(text, scores, "sliding"))
    }
    count = max(1, math.ceil(len(every) / 2))
    with rc_context(RC):
        figure = Figure(figsize=(7.0, 2.7 * count), layout="constrained")
        grid = [*figure.subplots(count, 2, squeeze=False).flat]
        for axes in grid:
            axes.set_axis_off()
        families = {}
        for axes, (task, pairs) in zip(grid, every.items(), strict=False):
            axes.set_axis_on()
            points = np.array([*pairs.values()]) * (100, 1) - (100, 0)
            ranks = pd.DataFrame(points * (-1, 1)).rank().to_numpy()
            apart = {*np.argsort(-abs(ranks[:, 0] - ranks[:, 1]))[:3]}
            for index, (name, point) in enumerate(zip(pairs, points, strict=True)):
                color = family_color(text.family(name))
                (families[text.family(name)],) = axes.plot(*point, "o", color=color, markersize=4)
                if index in apart or name == REFERENCE:
                    above = 3 if (ranks[:, 0] > ranks[index, 0]).sum() % 2 else -8
                    axes.annotate(
                        name, point, (3, above), textcoords="offset points", fontsize=6.5, color=color
                    )
            axes.set_xscale("symlog", linthresh=1)
            axes.set_xticks([-1, 0, 1, 3, 10], ["-1", "0", "+1", "+3", "+10 %"])
            axes.minorticks_off()
            axes.margins(0.12)
            value = spearman(np.array([*pairs.values()]) * (-1, 1))
            axes.set_title(f"{task}: rank correlation {value:.2f}", fontsize=8)
        figure.supxlabel("change of the loss on text from 1x to 4x under sliding, in per cent", fontsize=8)
        figure.supylabel("score of the task", fontsize=8)
        figure.legend(
            families.values(), families, loc="outside upper center", ncols=7, frameon=False, fontsize=7
        )
        return png(figure)


def _correlation(pairs: Mapping[str, tuple[float, float]], families: Mapping[str, str]) -> str:
    if not _varied(pairs):
        return DASH
    value = spearman(np.array([*pairs.values()]) * (-1, 1))  # a smaller loss is better
    low, high = without_a_family(pairs, families)
    return f"{value:.2f} ({low:.2f} to {high:.2f}), {len(pairs)} encodings"


def _varied(pairs: Mapping[str, tuple[float, float]]) -> bool:
    return len(pairs) >= 5 and np.mean([score == 0 for _, score in pairs.values()]) < TIED


def without_a_family(
    pairs: Mapping[str, tuple[float, float]], families: Mapping[str, str]
) -> tuple[float, float]:
    """The range of the correlation if the encodings of any one family are left out: those of a family behave
    alike."""
    found = [
        spearman(np.array([pairs[name] for name in pairs if families[name] != one]).reshape(-1, 2) * (-1, 1))
        for one in {*families.values()}
    ]
    return float(np.nanmin(found)), float(np.nanmax(found))


def spearman(pairs: np.ndarray) -> float:
    """The correlation of the ranks, ties with their mean rank; NaN where all values are equal."""
    ranks = pd.DataFrame(pairs).rank().to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(ranks.T)[0, 1]) if len(np.unique(ranks[:, 0])) > 1 else math.nan
