"""Panels as one matplotlib figure."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from zoo.errors import shorten
from zoo.figures.plots import Data
from zoo.figures.style import CAPTION, INK, RC, content

ACROSS = 4
"""Panels in a row; as many as there are encodings or runs, if these are more."""
WIDTH, HEIGHT = 3.9, 3.2
"""Size of a panel with title and caption, in inches."""
CAPTION_WIDTH, HEADING_WIDTH, LABEL_WIDTH = 66, 36, 42
"""Characters of a line of a caption, of the figure's title for each panel in a row, and of a label."""
INDENT = -42
"""Where titles and captions begin, in points from the axes."""


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
    heading = " · ".join(filter(None, (*columns, title)))
    lines = textwrap.wrap(heading, across * HEADING_WIDTH)
    with matplotlib.rc_context(RC):
        size = across * WIDTH, len(rows) * HEIGHT + 0.2 * len(lines)
        figure = PanelFigure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10.5, fontweight="bold")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1, hspace=0, wspace=0)
        cells, drawn = figure.add_gridspec(len(rows), across), defaultdict(list)
        placed = [(cells[y, x], one) for y, row in enumerate(rows) for x, one in enumerate(row)]
        for place, (label, panel) in placed:
            axes = figure.add_subplot(place)
            panel.draw(axes, panel.data)
            _describe(axes, panel, label if len(columns) > 1 else "")
            drawn[panel.key].append(axes)
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
    """Caption, title and label, each above the other."""
    below: Any = "axes fraction"
    for text, gap, look in (
        ("\n".join(textwrap.wrap(panel.caption, CAPTION_WIDTH)), 6, {"fontsize": 6.5, "color": CAPTION}),
        (panel.title, 3, {"fontsize": 8.5, "fontweight": "bold"}),
        (shorten(label, LABEL_WIDTH), 2, {"fontsize": 9.5, "fontweight": "bold", "color": panel.color}),
    ):
        indent = INDENT if below == "axes fraction" else 0
        below = axes.annotate(
            text, (0, 1), (indent, gap), xycoords=below, textcoords="offset points", va="bottom", **look
        )


def _share_scales(drawn: Sequence[Axes]) -> None:
    """Give all axes of a row the range of all of them, and their images one scale of colours."""
    images = [image for axes in drawn for image in axes.get_images()]
    for image in images:
        image.set_clim(min(one.get_clim()[0] for one in images), max(one.get_clim()[1] for one in images))
    ends = [axes.get_ylim() for axes in drawn]
    if not images and len({axes.get_yscale() for axes in drawn}) == 1:
        for axes in drawn:
            axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
