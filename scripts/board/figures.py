"""Figures of the pages of results: lines over lengths and dots in groups, one colour for each encoding."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from board.pairs import Estimate
from board.scores import Board
from board.text import png
from zoo import registry
from zoo.figures.style import DASHES, FAINT, FIRST, GRID, HUES, INK, MARKERS, RC, STYLES, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEXT = (
    "path", "nape+entmax", "asentmax", "nape", "grape_a", "bam", "alibi+entmax", "stick_breaking",
    "cable", "dape", "dpb", "transformer_xl", "rope+sink", "p_rope",
)  # fmt: skip
"""After the most used encodings: heads of a board, and combinations. All others follow by name."""
FAMILIES = (
    "rotary", "absolute", "content", "bias", "contextual", "weights", "position ids", "schedule",
)  # fmt: skip
LINEAR = 0.02
"""Smaller changes of the loss have a linear axis."""
LINE = 0.13
"""Inches of a line of text."""


def family_color(family: str) -> str:
    return HUES[FAMILIES.index(family)] if family in FAMILIES else INK


def looks(names: Sequence[str]) -> dict[str, Style]:
    """The style of each encoding, the same on all pages. A checkpoint that is read in another way (`rope,
    window 256`) has a hue that its figure leaves."""
    order = [*FIRST, *NEXT]
    order += sorted({*registry.encodings.names()} - {*order})
    found = {name: STYLES[order.index(name)] for name in names if name in order}
    taken = {style.color for style in found.values()}
    free = [hue for hue in HUES if hue not in taken] or [*HUES]
    for index, name in enumerate(name for name in names if name not in found):
        turn = index // len(free) + 1
        found[name] = Style(
            free[index % len(free)], DASHES[turn % len(DASHES)], MARKERS[index % len(MARKERS)]
        )
    return found


@dataclass(frozen=True)
class Curve:
    """The values of an encoding by length, and those of each seed; `note` follows its name at the end of the
    line."""

    points: Mapping[int, Estimate]
    note: str = ""
    seeds: Mapping[int, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyPanel:
    """Curves over lengths.

    Attributes:
        floor: the score of the best strategy that does not do the task, by length.
        subject: names of the curves that a question asks about.
        rate: values from 0 to 1. Otherwise changes, on an axis that is linear between -LINEAR and LINEAR and
            logarithmic outside.
    """

    title: str
    unit: str
    trained: int
    curves: Mapping[str, Curve]
    floor: Mapping[int, float] = field(default_factory=dict)
    subject: Sequence[str] = ()
    rate: bool = False

    def ends(self) -> tuple[float, float]:
        """The ends of the axis."""
        values = [point.value for one in self.curves.values() for point in one.points.values()]
        values += [value for one in self.curves.values() for own in one.seeds.values() for value in own]
        if self.rate:
            return math.floor(10 * min(values)) / 10 - 0.03, 1.03
        return 1.3 * min(*values, -LINEAR / 2), 1.3 * max(*values, LINEAR)


def lines(panels: Sequence[StudyPanel]) -> bytes:
    """The panels one below the other, as PNG: a dot for each seed, the name of each curve at its end, a line
    of dots at the trained length, and all below the floor in grey."""
    style = looks(list(dict.fromkeys(name for panel in panels for name in panel.curves)))
    heights = [max(2.6, LINE * (len(panel.curves) + 3)) for panel in panels]
    with rc_context(RC):
        figure = Figure(figsize=(7.0, sum(heights) + 0.6 * len(panels)), layout="constrained")
        grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
        for axes, panel, height in zip(grid.flat, panels, heights, strict=True):
            _draw(axes, panel, style, LINE / height)
        return png(figure)


def _draw(axes: Axes, panel: StudyPanel, style: Mapping[str, Style], gap: float) -> None:
    bottom, top = panel.ends()
    lengths = sorted({length for one in panel.curves.values() for length in one.points} | {panel.trained})
    axes.set_xscale("log", base=2)
    if not panel.rate:
        axes.set_yscale("symlog", linthresh=LINEAR)
        marks = [sign * mark for sign in (1, -1) for mark in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)]
        marks = [0.0, *(mark for mark in marks if bottom < mark < top)]
        axes.set_yticks(marks, [f"{mark:+g}" if mark else "0" for mark in marks])
    axes.set_ylim(bottom, top)
    axes.set_xlim(lengths[0] * 0.94, lengths[-1] * 1.06)
    axes.set_xticks(lengths, [f"{length}\n{length / panel.trained:g}x" for length in lengths])
    axes.minorticks_off()
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.axvline(panel.trained, color=FAINT, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=0)
    axes.set_ylabel(panel.unit)
    axes.set_title(panel.title, fontsize=8.5)
    if panel.floor:
        axes.fill_between([*panel.floor], bottom, [*panel.floor.values()], color=GRID, linewidth=0, zorder=0)
        axes.plot([*panel.floor], [*panel.floor.values()], color=FAINT, linewidth=1, zorder=1)

    def share(value: float) -> float:
        """The height of a value as a share of the axis."""
        scale = axes.transData + axes.transAxes.inverted()
        return float(scale.transform((lengths[0], value))[1])

    labels: list[tuple[float, str, str, bool, tuple[float, float]]] = []
    for index, (name, one) in enumerate(panel.curves.items()):
        look, strong = style[name], name in panel.subject
        # Bars of several curves stand next to each other.
        shift = 2 ** (0.05 * (index / max(1, len(panel.curves) - 1) - 0.5))
        at = np.array([*one.points]) * shift
        values = np.array([point.value for point in one.points.values()])
        axes.plot(
            at, values, color=look.color, linestyle=look.linestyle, linewidth=2.2 if strong else 1.2,
            marker=look.marker, markersize=4, markeredgecolor="white", markeredgewidth=0.4,
            zorder=4 if strong else 3,
        )  # fmt: skip
        for place, own in zip(at, (one.seeds.get(length, ()) for length in one.points), strict=True):
            axes.plot([place] * len(own), own, ".", color=look.color, alpha=0.6, markersize=3, zorder=2)
        text = name + (f" ({one.note})" if one.note else "")
        if max(one.points) < lengths[-1]:
            text += f", ends at {max(one.points)}"
        labels.append(
            (share(float(values[-1])), text, look.color, strong, (float(at[-1]), float(values[-1])))
        )
    if panel.floor:
        end = max(panel.floor)
        labels.append((share(panel.floor[end]), "floor", INK, True, (end, panel.floor[end])))
    labels.sort()
    heights = _apart([value for value, *_ in labels], gap, 0, 1)
    for (_, text, color, strong, end), height in zip(labels, heights, strict=True):
        line = {
            "arrowstyle": "-",
            "color": color,
            "linewidth": 0.4,
            "alpha": 0.6,
            "shrinkA": 0,
            "relpos": (0, 0.5),
        }
        axes.annotate(
            text, end, (1.02, height), textcoords="axes fraction",
            fontsize=7, va="center", color=color, fontweight="bold" if strong else "normal",
            annotation_clip=False, arrowprops=line if end[0] >= lengths[-1] * 0.95 else None,
        )  # fmt: skip


def _apart(values: Sequence[float], gap: float, bottom: float, top: float) -> np.ndarray:
    """The heights nearest to ascending values that are at least a gap apart."""
    steps = gap * np.arange(len(values))
    flat = np.array(values) - steps
    flat = (np.maximum.accumulate(flat) + np.minimum.accumulate(flat[::-1])[::-1]) / 2
    return flat.clip(bottom, max(bottom, top - steps[-1])) + steps


def dots(
    boards: Mapping[str, tuple[Board, str]], families: Mapping[str, str], names: Collection[str] = ()
) -> bytes:
    """The value of each encoding with its interval, a panel for each board, as PNG.

    The best are on top. After the name: the interval of the rank. Of all encodings, a line separates groups:
    below it begins the first one that is worse than the leader of the group above. Where a smaller value is
    better the axis ends at Tukey's fence.

    Args:
        names: the encodings that are shown; none: all.
    """
    shown = {
        title: [name for name in board.values if not names or name in names]
        for title, (board, _) in boards.items()
    }
    rows = max(map(len, shown.values()))
    with rc_context(RC):
        figure = Figure(figsize=(3.5 * len(boards), 0.155 * rows + 1.1), layout="constrained")
        grid = figure.subplots(1, len(boards), squeeze=False).flat
        for axes, (title, (board, unit)) in zip(grid, boards.items(), strict=True):
            _draw_dots(axes, board, unit, shown[title], families, rows)
            axes.set_title(title, fontsize=8.5)
        there = {families.get(name, "") for own in shown.values() for name in own}
        for family in (family for family in FAMILIES if family in there):
            axes.plot([], [], "o", color=family_color(family), markersize=4, label=family)
        figure.legend(loc="outside lower center", ncols=8, frameon=False, fontsize=7, handletextpad=0.1)
        return png(figure)


def _draw_dots(
    axes: Axes, board: Board, unit: str, names: Sequence[str], families: Mapping[str, str], rows: int
) -> None:
    every = board.behind or board.values
    known = [one for name in names if (one := every[name])]
    ascending = len(known) > 1 and known[0].value < known[-1].value
    low = min(one.low if one.low is not None else one.value for one in known)
    end = max(one.high if one.high is not None else one.value for one in known)
    if ascending:
        quarter, most = np.quantile([one.value for one in known], (0.25, 0.75))
        end = min(end, most + 1.5 * (most - quarter))
    margin = 0.04 * (end - low)
    axes.set_xlim(low - margin, end + margin)
    axes.set_ylim(rows - 0.5, -0.7)
    leaders = [group[0] for group in board.groups()[1:]] if len(names) == len(board.values) else []
    for name in leaders:
        axes.axhline(names.index(name) - 0.5, color=FAINT, linewidth=0.5)
    for row, name in enumerate(names):
        one, color = every[name], family_color(families.get(name, ""))
        if one is None:
            axes.text(end, row, "cannot be read beyond", ha="right", va="center", fontsize=6.5, color=INK)
            continue
        if one.value > end:
            axes.annotate(
                f"{one.value:+.2f}", (end + margin, row), (end - margin, row), ha="right", va="center",
                fontsize=6.5, color=color, arrowprops={"arrowstyle": "->", "color": color, "linewidth": 0.8},
            )  # fmt: skip
            continue
        if one.low is not None and one.high is not None:
            axes.plot([one.low, one.high], [row, row], color=color, linewidth=1.3, alpha=0.7)
        axes.plot(one.value, row, "o", color=color, markersize=4)
    axes.set_yticks(range(len(names)), [f"{name}  {board.place(name):>5}" for name in names])
    axes.tick_params(axis="y", length=0, labelsize=6.8)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(unit)
