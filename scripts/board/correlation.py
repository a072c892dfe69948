"""Does the change of the loss on text predict the score in a task? Rank correlations."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from scipy.stats import ConstantInputWarning, spearmanr

from board.measured import LEARNED, REFERENCE, Measured
from zoo.figures.style import RC, content, family_color
from zoo.reports.text import markdown_table

KEPT = 0.05
"""An encoding keeps its loss on text if that rises by at most this share at 4 times the trained length."""
TIED = 0.75
"""With this share of scores at the floor there is nothing to correlate."""


def pairs_of(text: Measured, scores: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """Of each encoding of which most seeds learned a task: its loss on text at 4 times the trained length as
    a multiple of that at the trained length (`rise`), the score in the task, and the family."""
    scores = scores.assign(learned=scores["answers"] >= LEARNED)
    means = scores.groupby("encoding")[["score", "learned"]].mean()
    losses = text.means(protocol)
    pairs = pd.DataFrame({
        "rise": losses[4 * text.trained] / losses[text.trained], "score": means["score"],
        "family": pd.Series(text.families),
    }).reindex(losses.index)  # fmt: skip
    return pairs[(means["learned"] > 0.5).reindex(pairs.index, fill_value=False)].dropna()


def correlations(text: Measured, tasks: Mapping[str, pd.DataFrame], protocols: Sequence[str]) -> str:
    """Spearman's rank correlation over encodings between the change on text and the score in each task."""
    columns = {}
    for protocol in protocols:
        every = [pairs_of(text, scores, protocol) for scores in tasks.values()]
        columns[protocol] = [_correlation(own) for own in every]
        columns[f"{protocol}, kept"] = [_correlation(own[own["rise"] <= 1 + KEPT]) for own in every]
    rows = [row for row in zip(tasks, *columns.values(), strict=True) if any(row[1:])]
    return markdown_table(["task", *columns], rows)


def correlation_figure(text: Measured, tasks: Mapping[str, pd.DataFrame]) -> bytes:
    """The score of each task over the change of the loss on text, a point for each encoding, as PNG. The
    encodings whose two ranks differ most are named."""
    every = {task: pairs_of(text, scores, "sliding") for task, scores in tasks.items()}
    every = {task: pairs for task, pairs in every.items() if _varied(pairs)}
    count = max(1, math.ceil(len(every) / 2))
    with rc_context(RC):
        figure = Figure(figsize=(7.0, 2.7 * count), layout="constrained")
        grid = [*figure.subplots(count, 2, squeeze=False).flat]
        for axes in grid:
            axes.set_axis_off()
        families = {}
        for axes, (task, pairs) in zip(grid, every.items(), strict=False):
            axes.set_axis_on()
            points = pairs[["rise", "score"]].to_numpy() * (100, 1) - (100, 0)
            ranks = pd.DataFrame(points * (-1, 1)).rank().to_numpy()
            apart = {*np.argsort(-abs(ranks[:, 0] - ranks[:, 1]))[:3]}
            for index, (name, family) in enumerate(pairs["family"].items()):
                color, point = family_color(family), points[index]
                (families[family],) = axes.plot(*point, "o", color=color, markersize=4)
                if index in apart or name == REFERENCE:
                    above = 3 if (ranks[:, 0] > ranks[index, 0]).sum() % 2 else -8
                    axes.annotate(
                        name, point, (3, above), textcoords="offset points", fontsize=6.5, color=color
                    )
            axes.set_xscale("symlog", linthresh=1)
            axes.set_xticks([-1, 0, 1, 3, 10], ["-1", "0", "+1", "+3", "+10 %"])
            axes.minorticks_off()
            axes.margins(0.12)
            axes.set_title(f"{task}: rank correlation {spearman(pairs):.2f}", fontsize=8)
        figure.supxlabel("change of the loss on text from 1x to 4x under sliding, in per cent", fontsize=8)
        figure.supylabel("score of the task", fontsize=8)
        figure.legend(
            families.values(), families, loc="outside upper center", ncols=7, frameon=False, fontsize=7
        )
        return content(figure, ".png", dpi=200)


def _correlation(pairs: pd.DataFrame) -> str:
    if not _varied(pairs):
        return ""
    low, high = without_a_family(pairs)
    return f"{spearman(pairs):.2f} ({low:.2f} to {high:.2f}), {len(pairs)} encodings"


def _varied(pairs: pd.DataFrame) -> bool:
    return len(pairs) >= 5 and (pairs["score"] == 0).mean() < TIED


def without_a_family(pairs: pd.DataFrame) -> tuple[float, float]:
    """The range of the correlation if the encodings of any one family are left out: those of a family behave
    alike."""
    found = [spearman(pairs[pairs["family"] != one]) for one in pairs["family"].unique()]
    return float(np.nanmin(found)), float(np.nanmax(found))


def spearman(pairs: pd.DataFrame) -> float:
    """The correlation of the ranks, of a smaller loss with a larger score; NaN where all values are equal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        return float(spearmanr(-pairs["rise"], pairs["score"]).statistic) if len(pairs) > 1 else math.nan
