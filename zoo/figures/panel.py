"""One picture among those of a figure: what is drawn, how, and the sentence that says what to see."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from zoo.figures.style import CAPTION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Data = Mapping[str, np.ndarray]
Limits = tuple[float, float]
Paint = Callable[["Axes", Data, Limits | None], None]
"""Draws data on axes; the limits are those of the colours, None where the data's own serve."""
CHARACTERS, LINE, INDENT = 68, 8.1, -42
"""Of a caption's line in a picture; its height, and where it begins left of the axes, in points."""


@dataclass(frozen=True)
class Panel:
    """A picture of its own.

    `key` says what it shows ("bias_by_distance"): panels of one key stand in one row and share their scales.
    `data` is exactly what is drawn.
    """

    key: str
    title: str
    caption: str
    """A sentence: what to see."""
    data: Data
    paint: Paint = field(repr=False, compare=False)
    colored: str = ""
    """Which of the data is drawn as colour."""
    outliers: float = 0.0
    """The share of its values, at either end, that need not be told apart by their colour."""

    @property
    def range(self) -> Limits | None:
        """The least and the largest value that is drawn as colour; None where there is none."""
        if not self.colored:
            return None
        values = self.data[self.colored]
        values = values[np.isfinite(values)]
        ends = self.outliers, 1 - self.outliers
        return tuple(float(np.quantile(values, end)) for end in ends) if values.size else None

    def draw(self, axes: Axes, limits: Limits | None = None, captioned: bool = True) -> None:
        """Draw it, with its title and, above the axes, its caption."""
        self.paint(axes, self.data, limits or self.range)
        if not captioned:
            return
        lines = textwrap.wrap(self.caption, CHARACTERS)
        place = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "left", "va": "bottom"}
        axes.annotate("\n".join(lines), (0, 1), xytext=(INDENT, 5), fontsize=6.5, color=CAPTION, **place)
        above = 8 + LINE * len(lines)
        axes.annotate(self.title, (0, 1), xytext=(INDENT, above), fontsize=8.5, fontweight="bold", **place)


def shared(panels: list[Panel]) -> Limits | None:
    """The limits of the colours of panels that stand in one row."""
    ranges = [one for one in (panel.range for panel in panels) if one is not None]
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None
