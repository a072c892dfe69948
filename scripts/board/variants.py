"""Tasks in another setting: in that of each encoding (`own_TASK`), and with gates (`gate_TASK`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from statistics import fmean

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from board.boards import Boards, TaskBoard, share
from board.measured import LEFT_OUT, Measured
from zoo.comparison.formatting import number
from zoo.figures.style import HUES, RC, content, family_color
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
SHIFTS = (-0.2, 0.0, 0.2)
"""How far these three are drawn apart."""
Both = tuple[TaskBoard, TaskBoard]


def variants(boards: Boards, prefix: str) -> dict[str, Both]:
    """Of each task that is measured completely: its board, and its scores in the variant."""
    found = {}
    for one in boards.found:
        other = boards.others.get(prefix + one.study.name)
        if other is None or not one.is_task:
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


def gate_scores(found: Mapping[str, Both]) -> dict[tuple[str, str], list[list[float]]]:
    """By task and encoding: the scores of all seeds without a gate, with one, and with a sink."""
    scores = {}
    for task, both in found.items():
        seeds = pd.concat([one.scores for one in both]).groupby("encoding")["score"].apply(list)
        for names in GATED.values():
            scores[task, names[0]] = [seeds.get(name, []) for name in names]
    return scores


def gate_table(found: Mapping[str, Both]) -> str:
    """The cells that a gate moves most: the mean score without it, with it, and with a sink."""
    scores = gate_scores(found)
    means = {key: [fmean(seeds) if seeds else nan for seeds in one] for key, one in scores.items()}
    most = sorted(means, key=lambda key: -abs(means[key][1] - means[key][0]))[:ROWS]
    rows = [[*key, *(share(mean) for mean in means[key])] for key in most]
    return markdown_table(["task", "encoding", "alone", "with a gate", "with a sink"], rows)


def gate_figure(found: Mapping[str, Both]) -> bytes:
    """The score of each seed without a gate, with one and with a sink, a panel for each encoding, as PNG."""
    scores = gate_scores(found)
    with rc_context(RC):
        figure = Figure(figsize=(7.2, 2.6), layout="constrained")
        panels = figure.subplots(1, len(GATED), sharey=True)
        for axes, encoding in zip(panels, GATED, strict=True):
            for row, task in enumerate(found):
                for shift, color, seeds in zip(SHIFTS, HUES, scores[task, encoding], strict=False):
                    axes.plot(seeds, [row + shift] * len(seeds), "o", color=color, markersize=4, alpha=0.8)
            axes.set_title(encoding, fontsize=8)
            axes.set_xlim(-0.04, 1.04)
            axes.set_xlabel("score above the floor")
        panels[0].set_yticks(range(len(found)), found)
        panels[0].invert_yaxis()
        marks = [panels[0].plot([], [], "o", color=color, markersize=4)[0] for color in HUES[: len(SHIFTS)]]
        figure.legend(marks, ["alone", "with a gate", "with a sink"], loc="outside lower center", ncols=3)
        return content(figure, ".png", dpi=200)


def gate_text(text: Measured, gated: Measured, lengths: Sequence[int] = (256, 1024, 8192)) -> str:
    """The losses on text without a gate and with one, of the seeds that both have."""
    rows = pd.concat([one.rows[one.rows["protocol"] == text.protocol] for one in (text, gated)])
    rows = rows[(rows["measure"] == text.measure) & rows["seed"].isin(gated.rows["seed"])]
    means = rows.pivot_table("value", "encoding", "length")
    rows = [
        [encoding, *(" → ".join(number(means.loc[name, at]) for name in names[:2]) for at in lengths)]
        for encoding, names in GATED.items() if {*names[:2]} <= {*means.index}
    ]  # fmt: skip
    heads = [f"{length} ({length / text.trained:g}x)" for length in lengths]
    return markdown_table(["encoding, without → with a gate", *heads], rows)


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
