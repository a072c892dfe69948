"""The means beyond the trained length, or scores, with their intervals and ranks: a dot for each encoding."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zoo.comparison.ranking import Ranking
from zoo.figures.style import FAINT, FAMILIES, GRID, INK, RC, content, family_color

Board = tuple[pd.DataFrame, str]
"""A row for each encoding, the best first, with value, low, high and rank (a text), and whether it `leads` a
group; and the label of the axis."""


def board(ranking: Ranking, unit: str) -> Board:
    """A ranking by its paired differences to the first, or by its values where it has none."""
    every = {name: ranking.behind.get(name, one) for name, one in ranking.values.items()}
    rows = {name: (one.value, one.low, one.high, ranking.rank(name)) for name, one in every.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high", "rank"])
    return table.assign(leads=table.index.isin([group[0] for group in ranking.groups()[1:]])), unit


def dots(
    boards: Mapping[str, Board],
    families: Mapping[str, str],
    names: Collection[str] = (),
    suffix: str = ".png",
) -> bytes:
    """The value of each encoding with its interval, a panel for each board.

    The best are on top. After the name: the rank interval. Of all encodings, a line separates groups: below
    it begins the first one that is worse than the leader of the group above. Where a smaller value is better
    the axis ends at Tukey's fence.

    Args:
        families: of the encodings, which decide the colours.
        names: the encodings that are shown; none: all.
    """
    shown = {
        title: [one for one in table.index if not names or one in names]
        for title, (table, _) in boards.items()
    }
    rows = max(map(len, shown.values()))
    with rc_context(RC):
        figure = Figure(figsize=(3.5 * len(boards), 0.155 * rows + 1.1), layout="constrained")
        grid = figure.subplots(1, len(boards), squeeze=False).flat
        for axes, (title, (table, unit)) in zip(grid, boards.items(), strict=True):
            _draw(axes, table.loc[shown[title]], families, rows)
            if len(shown[title]) == len(table):
                for row in np.flatnonzero(table["leads"]):
                    axes.axhline(row - 0.5, color=FAINT, linewidth=0.5)
            axes.set_title(title, fontsize=8.5)
            axes.set_xlabel(unit)
        there = {families.get(name, "") for own in shown.values() for name in own}
        for family in (family for family in FAMILIES if family in there):
            axes.plot([], [], "o", color=family_color(family), markersize=4, label=family)
        figure.legend(loc="outside lower center", ncols=8, frameon=False, fontsize=7, handletextpad=0.1)
        return content(figure, suffix, dpi=200)


def _draw(axes: Axes, table: pd.DataFrame, families: Mapping[str, str], rows: int) -> None:
    known = table[table["value"].notna()]
    ends = known[["low", "value", "high"]]
    low, end = ends.min().min(), ends.max().max()
    if len(known) > 1 and known["value"].iloc[0] < known["value"].iloc[-1]:
        quarter, most = known["value"].quantile([0.25, 0.75])
        end = min(end, most + 1.5 * (most - quarter))
    margin = 0.04 * (end - low) or 1.0
    axes.set_xlim(low - margin, end + margin)
    axes.set_ylim(rows - 0.5, -0.7)
    for row, (name, one) in enumerate(table.iterrows()):
        color = family_color(families.get(name, ""))
        text = {"ha": "right", "va": "center", "fontsize": 6.5}
        if np.isnan(one["value"]):
            axes.text(end, row, "cannot be read beyond", color=INK, **text)
        elif one["value"] > end:
            arrow = {"arrowstyle": "->", "color": color, "linewidth": 0.8}
            places = (end + margin, row), (end - margin, row)
            axes.annotate(f"{one['value']:+.2f}", *places, color=color, arrowprops=arrow, **text)
        else:
            axes.plot([one["low"], one["high"]], [row, row], color=color, linewidth=1.3, alpha=0.7)
            axes.plot(one["value"], row, "o", color=color, markersize=4)
    axes.set_yticks(range(len(table)), [f"{name}  {rank:>5}" for name, rank in table["rank"].items()])
    axes.tick_params(axis="y", length=0, labelsize=6.8)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
