"""Does the change of the loss on text predict the score in a task? Rank correlations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from board.figures import looks
from board.measured import Measured
from board.text import DASH, png, table
from zoo import registry
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


def correlations(text: Measured, tasks: Mapping[str, pd.DataFrame]) -> str:
    """Spearman's rank correlation over encodings between the change on text and the score in each task."""
    rows = []
    for protocol in ("nonoverlapping", "sliding"):  # `fixed_targets` has one document
        every = [pairs_of(text, scores, protocol) for scores in tasks.values()]
        kept = [{name: pair for name, pair in own.items() if pair[0] <= 1 + KEPT} for own in every]
        for label, some in ((protocol, every), (f"{protocol}, kept", kept)):
            rows.append([label, *(_correlation(pairs, {name: family(text, name) for name in pairs})
                                  for pairs in some)])  # fmt: skip
    return table(["protocol", *tasks], rows)


def family(one: Measured, name: str) -> str:
    """The family of an encoding, or of the first one that it is built of in this study."""
    spec: Any = one.study.options.get(name, {})
    spec = spec if isinstance(spec, list) else {"name": name, **spec}
    while not isinstance(spec, str):
        spec = spec[0] if isinstance(spec, list) else spec.get("of") or spec.get("pattern") or spec["name"]
    return registry.encodings.describe(spec).family


def correlation_figure(text: Measured, tasks: Mapping[str, pd.DataFrame]) -> bytes:
    """The score of each task over the order of the changes of the loss on text, a point for
    each encoding, as PNG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(4, len(tasks) + 1)
    count = math.ceil((len(tasks) + 1) / columns)  # the last panel has the names
    style = looks(text.encodings)
    with rc_context(RC):
        figure = Figure(figsize=(2.4 * columns, 2.4 * count), layout="constrained")
        grid = figure.subplots(count, columns, squeeze=False).flat
        every = [
            dict(sorted(pairs_of(text, scores).items(), key=lambda one: -one[1][0]))
            for scores in tasks.values()
        ]
        for axes, task, pairs in zip(grid, tasks, every, strict=False):
            for place, (name, (_, score)) in enumerate(pairs.items()):
                axes.plot(place, score, style[name].marker, color=style[name].color, markersize=3.8)
            axes.set_xticks([])
            axes.set_title(task)
            if _varied(pairs):
                value = spearman(np.array([*pairs.values()]) * (-1, 1))
                axes.annotate(
                    f"rank correlation {value:+.2f}", (0.03, 0.97), xycoords="axes fraction", va="top",
                    fontsize=7,
                )  # fmt: skip
            axes.margins(y=0.12)
        for axes in grid[len(tasks) :]:
            axes.set_axis_off()
        for name in dict.fromkeys(name for pairs in every for name in pairs):
            grid[len(tasks)].plot(
                [], [], style[name].marker, color=style[name].color, markersize=3.8, label=name
            )
        grid[len(tasks)].legend(ncols=2, fontsize=5.5, frameon=False, loc="upper left")
        figure.supxlabel(
            "encodings by the change of their loss on text to 4x, the best on the right", fontsize=8
        )
        figure.supylabel("score above the floor beyond 1x", fontsize=8)
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
