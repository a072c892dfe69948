"""Panels as one matplotlib figure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from zoo.errors import shorten
from zoo.figures.plots import Data
from zoo.figures.style import CAPTION, INK, RC, content

ACROSS = 4
"""Panels in a row; as many as there are encodings or runs, if these are more."""
WIDTH, HEIGHT, HEAD = 3.9, 3.2, 0.3
"""Size of a panel with title and caption, and height of a line of the figure's title, in inches."""
LEFT, RIGHT, BOTTOM, TOP = 0.7, 0.5, 0.52, 0.86
"""Space around the axes of a panel, in inches: all axes of a figure are of one size."""
CHARACTERS, LINE, INDENT = 66, 8.1, -42
"""Length of a line of a caption; its height and its distance left of the axes, in points."""
LABEL = 42
"""Characters of a label."""


@dataclass(frozen=True)
class Panel:
    """A plot: `draw` draws `data`, which holds exactly the numbers that are shown.

    Panels with the same key stand in one row of a figure and share their scales.
    """

    key: str
    title: str
    caption: str
    data: Data
    draw: Callable[[Axes, Data], None]
    color: str = INK
    """The colour of its encoding."""


Columns = Mapping[str, Sequence[Panel]]
"""The panels of each encoding or run, by its label."""


class PanelFigure(Figure):
    """A matplotlib figure that a notebook shows as a PNG."""

    def _repr_png_(self) -> bytes:
        return content(self, ".png")


def grid(columns: Columns, title: str = "") -> PanelFigure:
    """All panels in one figure: those of one key side by side in a row, which may have several keys."""
    across, rows = max(len(columns), ACROSS), [[]]
    for there in by_key(columns).values():
        if len(rows[-1]) + len(there) > across:
            rows.append([])
        rows[-1] += there.items()
    across = max(1, *map(len, rows))
    wide, high = across * WIDTH, len(rows) * HEIGHT + HEAD
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    with matplotlib.rc_context(RC):
        figure = PanelFigure(figsize=(wide, high))
        FigureCanvasAgg(figure)
        figure.subplots_adjust(
            left=LEFT / wide, right=1 - RIGHT / wide, bottom=BOTTOM / high, top=1 - (HEAD + TOP) / high,
            wspace=(LEFT + RIGHT) / inner_width, hspace=(TOP + BOTTOM) / inner_height,
        )  # fmt: skip
        heading, place = " · ".join(filter(None, (*columns, title))), (0.1 / wide, 1 - HEAD / 2 / high)
        figure.text(*place, heading, fontsize=10.5, fontweight="bold", va="center")
        drawn: dict[str, list[Axes]] = {}
        for row, cells in zip(rows, figure.subplots(len(rows), across, squeeze=False), strict=True):
            for axes in cells[len(row) :]:
                axes.remove()
            for axes, (label, panel) in zip(cells, row, strict=False):
                panel.draw(axes, panel.data)
                _describe(axes, panel, label if len(columns) > 1 else "")
                drawn.setdefault(panel.key, []).append(axes)
        for same in drawn.values():
            _share_scales(same)
    return figure


def by_key(columns: Columns) -> dict[str, dict[str, Panel]]:
    """For each key the panels by label, in the order in which the columns have their keys."""
    keys: list[str] = []
    for panels in columns.values():
        at = 0
        for panel in panels:
            if panel.key not in keys:
                keys.insert(at, panel.key)
            at = keys.index(panel.key) + 1
    found: dict[str, dict[str, Panel]] = {key: {} for key in keys}
    for label, panels in columns.items():
        for panel in panels:
            found[panel.key][label] = panel
    return found


def _describe(axes: Axes, panel: Panel, label: str) -> None:
    """Label, title and caption above the axes."""
    lines = textwrap.wrap(panel.caption, CHARACTERS)
    place = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "left", "va": "bottom"}
    axes.annotate("\n".join(lines), (0, 1), xytext=(INDENT, 6), fontsize=6.5, color=CAPTION, **place)
    above = 9 + LINE * len(lines)
    axes.annotate(panel.title, (0, 1), xytext=(INDENT, above), fontsize=8.5, fontweight="bold", **place)
    look = {"fontsize": 9.5, "fontweight": "bold", "color": panel.color}
    axes.annotate(shorten(label, LABEL), (0, 1), xytext=(INDENT, above + 12), **look, **place)


def _share_scales(drawn: Sequence[Axes]) -> None:
    """Give all axes of a row the range of all of them, and their images one scale of colours."""
    images = [image for axes in drawn for image in axes.get_images()]
    for image in images:
        image.set_clim(min(one.get_clim()[0] for one in images), max(one.get_clim()[1] for one in images))
    ends = [axes.get_ylim() for axes in drawn]
    if not images and len({axes.get_yscale() for axes in drawn}) == 1:
        for axes in drawn:
            axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
