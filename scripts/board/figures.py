"""Figures of the pages of results: lines over lengths and dots in groups, one colour for each encoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    "path", "nape_entmax", "nape_adaptive", "heads", "grape_a", "bam", "alibi_entmax", "stick_breaking",
    "cable", "dape", "dpb", "transformer_xl", "rope_sink", "p_rope",
)  # fmt: skip
"""After the most used encodings: heads of a board, and combinations. All others follow by name."""
LINE = 0.13
"""Inches of a line of text."""


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
    """The values of an encoding by length; `note` follows its name at the end of the line."""

    points: Mapping[int, Estimate]
    note: str = ""


@dataclass(frozen=True)
class StudyPanel:
    """Curves over lengths.

    Attributes:
        floor: the score of the best strategy that does not do the task, by length.
        subject: names of the curves that a question asks about.
        rate: values from 0 to 1. Otherwise outliers above are cut off.
    """

    title: str
    unit: str
    trained: int
    curves: Mapping[str, Curve]
    floor: Mapping[int, float] = field(default_factory=dict)
    subject: Sequence[str] = ()
    rate: bool = False

    def ends(self) -> tuple[float, float]:
        """The ends of the axis. A curve far above the others (four quartile ranges) is cut."""
        if self.rate:
            return -0.03, 1.03
        highest = [max(point.value for point in one.points.values()) for one in self.curves.values()]
        low, high = np.quantile(highest, (0.25, 0.75))
        fence = high + 4 * (high - low)
        kept = [one for one, top in zip(self.curves.values(), highest, strict=True) if top <= fence]
        values = [
            end
            for one in kept
            for point in one.points.values()
            for end in (point.value, point.low, point.high)
        ]
        known = [value for value in values if value is not None]
        bottom, top = min(known), min(max(known), fence)
        margin = 0.05 * (top - bottom)
        return bottom - margin, top + margin


def lines(panels: Sequence[StudyPanel]) -> bytes:
    """The panels one below the other, as PNG: a bar for the interval at each length, the name of each curve
    at its end, a dotted line at the trained length, and all below the floor in grey."""
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
    labels = []
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
        for place, point in zip(at, one.points.values(), strict=True):
            if point.low is not None and point.high is not None:
                axes.plot(
                    [place] * 2,
                    [point.low, point.high],
                    color=look.color,
                    alpha=0.45,
                    linewidth=0.9,
                    zorder=2,
                )
        text = name + (f" ({one.note})" if one.note else "")
        if values[-1] > top:
            text += f", up to {values.max():+.2f}"
            inside = np.flatnonzero(values <= top)[-1]
            last = slice(inside, inside + 2)
            crossing = 2 ** np.interp(top, values[last], np.log2(at[last]))
            axes.plot(crossing, top, "^", color=look.color, markersize=5, clip_on=False)
        elif max(one.points) < lengths[-1]:
            text += f", ends at {max(one.points)}"
        labels.append((min(float(values[-1]), top), text, look.color, strong, float(at[-1])))
    if panel.floor:
        labels.append((list(panel.floor.values())[-1], "floor", INK, True, max(panel.floor)))
    labels.sort()
    heights = _apart([value for value, *_ in labels], gap * (top - bottom), bottom, top)
    for (value, text, color, strong, end), height in zip(labels, heights, strict=True):
        line = {
            "arrowstyle": "-",
            "color": color,
            "linewidth": 0.4,
            "alpha": 0.6,
            "shrinkA": 0,
            "relpos": (0, 0.5),
        }
        axes.annotate(
            text, (end, value), (1.02, (height - bottom) / (top - bottom)), textcoords="axes fraction",
            fontsize=7, va="center", color=color, fontweight="bold" if strong else "normal",
            annotation_clip=False, arrowprops=line if end >= lengths[-1] * 0.95 else None,
        )  # fmt: skip


def _apart(values: Sequence[float], gap: float, bottom: float, top: float) -> np.ndarray:
    """The heights nearest to ascending values that are at least a gap apart."""
    steps = gap * np.arange(len(values))
    flat = np.array(values) - steps
    flat = (np.maximum.accumulate(flat) + np.minimum.accumulate(flat[::-1])[::-1]) / 2
    return flat.clip(bottom, max(bottom, top - steps[-1])) + steps


def dots(boards: Mapping[str, tuple[Board, str]]) -> bytes:
    """The value of each encoding with its interval, a panel for each board, as PNG.

    The best are on top. A line separates groups: below it begins the first encoding that is worse than the
    leader of the group above. Where a smaller value is better the axis ends at Tukey's fence.
    """
    rows = max(len(board.values) for board, _ in boards.values())
    with rc_context(RC):
        figure = Figure(figsize=(3.3 * len(boards), 0.155 * rows + 0.9), layout="constrained")
        for axes, (title, (board, unit)) in zip(
            figure.subplots(1, len(boards), squeeze=False).flat, boards.items(), strict=True
        ):
            _draw_dots(axes, board, unit, rows)
            axes.set_title(title, fontsize=8.5)
        return png(figure)


def _draw_dots(axes: Axes, board: Board, unit: str, rows: int) -> None:
    names, shown = [*board.values], board.behind or board.values
    known = [one for one in shown.values() if one]
    # The most used have the color of the other figures. There are fewer hues than encodings.
    style = looks([name for name in names if name in FIRST])
    ascending = len(known) > 1 and known[0].value < known[-1].value
    low = min(one.low if one.low is not None else one.value for one in known)
    end = max(one.high if one.high is not None else one.value for one in known)
    if ascending:
        quarter, most = np.quantile([one.value for one in known], (0.25, 0.75))
        end = min(end, most + 1.5 * (most - quarter))
    margin = 0.04 * (end - low)
    axes.set_xlim(low - margin, end + margin)
    axes.set_ylim(rows - 0.5, -0.7)
    count = 0
    for group in board.groups():
        count += len(group)
        axes.axhline(
            count - 0.5, color=FAINT, linewidth=0.5, xmin=-0.35 if count < len(names) else 0, clip_on=False
        )
    for row, name in enumerate(names):
        one, color = shown[name], style[name].color if name in style else INK
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
    spans = [board.place(name) for name in names]
    axes.set_yticks(
        range(len(names)), [f"{name}  {span:>5}" for name, span in zip(names, spans, strict=True)]
    )
    axes.tick_params(axis="y", length=0, labelsize=6.8)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(unit)
