"""Does the order change if each encoding has its own setting? Scores of `own_TASK` beside those of TASK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from board.boards import Boards, TaskBoard, share
from zoo.figures.style import RC, content, family_color
from zoo.reports.text import markdown_table

PREFIX = "own_"
MOVED = 0.1
"""An encoding whose score moves by more has its name in the figure."""
ROWS = 5
Both = tuple[TaskBoard, TaskBoard]


def own_boards(boards: Boards) -> dict[str, Both]:
    """Of each task that is measured completely, the board in the common setting and the one in which each
    encoding has its own; those whose own setting is the common one have the same scores in both."""
    found = {}
    for one in boards.found:
        own = boards.others.get(PREFIX + one.study.name)
        if own is None:
            continue
        new = boards.scores(replace(own, title=one.title), boards.counted(one).title)
        if len(new) < len(own.study.entries(Path())):
            continue
        common = boards.scores(one)
        kept = common[~common["encoding"].isin(new["encoding"])]
        found[one.title] = TaskBoard(common), TaskBoard(pd.concat([kept, new], ignore_index=True))
    return found


def own_table(found: Mapping[str, Both]) -> str:
    """The encodings whose score moves most; in brackets the answers at the trained length."""
    rows = []
    for task, both in found.items():
        pairs = _pairs(*both)
        for name in (pairs["own"] - pairs["common"]).abs().nlargest(ROWS).index:
            scores = [f"{share(one.score(name, task))} ({one.answers(name)})" for one in both]
            rows.append([task, name, *scores])
    return markdown_table(["task", "encoding", "one setting", "its own"], rows)


def own_figure(found: Mapping[str, Both], families: Mapping[str, str]) -> bytes:
    """The score in the own over that in the common setting, a panel for each task, as PNG."""
    with rc_context(RC):
        figure = Figure(figsize=(3.6 * len(found), 3.6), layout="constrained")
        panels = figure.subplots(1, len(found), squeeze=False).flat
        for axes, (task, both) in zip(panels, found.items(), strict=True):
            pairs = _pairs(*both)
            axes.plot([0, 1], [0, 1], color="0.8", linewidth=0.8, zorder=0)
            for name, one in pairs.iterrows():
                color = family_color(families[name])
                axes.plot(*one, "o", color=color, markersize=4)
                if abs(one["own"] - one["common"]) > MOVED:
                    axes.annotate(name, one, (4, -2), textcoords="offset points", fontsize=6.5, color=color)
            order = spearmanr(pairs["common"], pairs["own"]).statistic
            axes.set_title(f"{task}: rank correlation {order:.2f}", fontsize=8)
            axes.set_xlabel("score in one setting for all")
            axes.set_ylabel("score in its own setting")
        return content(figure, ".png", dpi=200)


def _pairs(one: TaskBoard, other: TaskBoard) -> pd.DataFrame:
    means = [board.scores.groupby("encoding")["score"].mean() for board in (one, other)]
    return pd.DataFrame(dict(zip(("common", "own"), means, strict=True))).dropna()
