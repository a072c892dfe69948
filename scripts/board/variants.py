"""Tasks in another setting: in that of each encoding (`own_TASK`), and with gates (`gate_TASK`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from board.boards import Boards, TaskBoard, share
from board.measured import LEFT_OUT
from zoo.figures.style import RC, content, family_color
from zoo.reports.text import markdown_table

OWN, GATE = "own_", "gate_"
MOVED = 0.1
"""An encoding whose score moves by more has its name in the figure."""
ROWS = 5
GATED = {
    "none": ("none", "none_gated", "sink"),
    "rope": ("rope", "rope_gated", "rope+sink"),
    "alibi": ("alibi", "alibi_gated", ""),
}
"""The rows of the question about gates: without, with a gate, with a sink."""
Both = tuple[TaskBoard, TaskBoard]


def variants(boards: Boards, prefix: str) -> dict[str, Both]:
    """Of each task that is measured completely: its board, and its scores in the variant."""
    found = {}
    for one in boards.found:
        other = boards.others.get(prefix + one.study.name)
        if other is None:
            continue
        new = boards.scores(replace(other, title=one.title), boards.counted(one).title)
        if len(new) == sum(entry.encoding not in LEFT_OUT for entry in other.study.entries(Path())):
            found[one.title] = TaskBoard(boards.scores(one)), TaskBoard(new)
    return found


def own_boards(boards: Boards) -> dict[str, Both]:
    """Of each task, the board in the common setting and the one in which each encoding has its own; those
    whose own setting is the common one have the same scores in both."""
    found = {}
    for task, (common, new) in variants(boards, OWN).items():
        kept = common.scores[~common.scores["encoding"].isin(new.scores["encoding"])]
        found[task] = common, TaskBoard(pd.concat([kept, new.scores], ignore_index=True))
    return found


def gate_table(found: Mapping[str, Both]) -> str:
    """The mean score in each task without a gate, with one, and with a sink."""
    rows = []
    for task, both in found.items():
        scores = pd.concat([one.scores for one in both]).groupby("encoding")["score"].mean()
        for names in GATED.values():
            rows.append([task, names[0], *(share(scores.get(name, float("nan"))) for name in names)])
    return markdown_table(["task", "encoding", "alone", "with a gate", "with a sink"], rows)


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
