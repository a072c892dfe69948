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
CHARACTERS = 62
"""Of a caption's line in a picture."""


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

    @property
    def range(self) -> Limits | None:
        """The least and the largest value that is drawn as colour; None where there is none."""
        if not self.colored:
            return None
        values = self.data[self.colored]
        values = values[np.isfinite(values)]
        return (float(values.min()), float(values.max())) if values.size else None

    def draw(self, axes: Axes, limits: Limits | None = None, captioned: bool = True) -> None:
        """Draw it, with its title and, above the axes, its caption."""
        self.paint(axes, self.data, limits or self.range)
        if not captioned:
            return
        lines = textwrap.wrap(self.caption, CHARACTERS)
        axes.set_title(self.title, loc="left", fontsize=8.5, fontweight="bold", pad=5 + 8.2 * len(lines))
        axes.annotate(
            "\n".join(lines), (0, 1), xycoords="axes fraction", xytext=(0, 4), textcoords="offset points",
            fontsize=6.5, va="bottom", ha="left", color=CAPTION,
        )  # fmt: skip


def shared(panels: list[Panel]) -> Limits | None:
    """The limits of the colours of panels that stand in one row."""
    ranges = [one for one in (panel.range for panel in panels) if one is not None]
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None
