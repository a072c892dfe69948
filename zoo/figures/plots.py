"""Functions that draw on matplotlib axes: lines over tokens, tables as colours, and the trained length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from zoo.figures.style import FAINT

DASHED = ("-", "--", "-.", ":")
Data = Mapping[str, Any]


@dataclass(frozen=True)
class Reach:
    """Tokens on an axis: drawn to `length`, trained to `trained`, defined to `defined`."""

    trained: int
    length: int
    defined: int

    @property
    def note(self) -> str:
        return f" Refused beyond {self.defined} tokens." if self.defined < self.length else ""


@dataclass(frozen=True)
class LinePlot:
    """Lines over positions or distances, with the trained length marked. A call draws `data`.

    `data` has the lines `mean` [L,N], with the ends `low` and `high` of their intervals, and the tokens `x`,
    [N] or [L,N], by default from 0 on.

    Attributes:
        axis, unit: the labels of the axes.
        looks: label, colour and so on of each line; without labels there is no legend.
        level: a horizontal line for comparison.
        log, log_tokens: logarithmic axes.
        limits: bottom and top of the vertical axis.
    """

    reach: Reach
    axis: str
    unit: str
    looks: Sequence[Mapping[str, Any]]
    level: float | None = None
    log: bool = False
    log_tokens: bool = False
    limits: tuple[float | None, float | None] = (None, None)

    def __call__(self, axes: Axes, data: Data) -> None:
        mean, low, high = (np.asarray(data.get(name, data["mean"])) for name in ("mean", "low", "high"))
        x = np.broadcast_to(data.get("x", np.arange(mean.shape[1])), mean.shape)
        if self.log:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(lambda value, _: "")
        if self.level is not None:
            axes.axhline(self.level, color=FAINT, linewidth=0.7)
        for index, look in enumerate(self.looks):
            at = np.isfinite(mean[index])
            if "low" in data:
                band = x[index, at], low[index, at], high[index, at]
                axes.fill_between(*band, color=look["color"], alpha=0.15, linewidth=0)
            axes.plot(x[index, at], mean[index, at], **{"linewidth": 1.1, "markersize": 2.5, **look})
        axes.set_ylim(*self.limits)
        axes.set_ylabel(self.unit)
        token_axis(axes, self.reach, f"{self.axis} (tokens)", self.log_tokens)
        if any("label" in look for look in self.looks):
            axes.legend(ncols=2, fontsize=6, handlelength=2.2, frameon=False, labelspacing=0.2)


def looks_of_heads(count: int, color: str) -> list[dict[str, Any]]:
    """The looks of a line for each head; of many the labels are left out."""
    looks: list[dict[str, Any]] = [{"color": shade} for shade in shades(color, count)]
    for head, look in enumerate(looks if 1 < count <= 8 else ()):
        look |= {"label": f"head {head + 1}", "linestyle": DASHED[head % len(DASHED)]}
    return looks


def shades(color: str, count: int) -> list[tuple[float, ...]]:
    """Colours of one hue from dark to light, for the heads of one encoding."""
    full = np.array(to_rgb(color))
    mixes = np.linspace(-0.4, 0.5, count) if count > 1 else [0.0]
    return [tuple(full * (1 + mix) if mix < 0 else full + (1 - full) * mix) for mix in mixes]


def spread(count: int, most: int) -> list[int]:
    """All of `count` indices, or `most` of them evenly spread with the first and the last.

    >>> spread(3, 4), spread(24, 4)
    ([0, 1, 2], [0, 8, 15, 23])
    """
    return np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()


def token_axis(axes: Axes, reach: Reach, name: str, log: bool = False) -> None:
    """Label the axis of positions or distances, and mark the trained length and the end of the encoding."""
    if log:
        axes.set_xscale("symlog", base=4, linthresh=1, linscale=0.5)
        axes.xaxis.get_major_locator().set_params(numticks=9)
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlim(0, reach.length)
    axes.set_xlabel(name, labelpad=1)
    axes.set_xticks([], minor=True)
    if reach.trained < reach.length:
        axes.xaxis.remove_overlapping_locs = False  # the mark stays where there is a tick too
        axes.set_xticks([reach.trained], [f"trained: {reach.trained}"], minor=True)
        axes.tick_params(axis="x", which="minor", length=0, pad=17)
        axes.axvspan(reach.trained, reach.length, color=FAINT, alpha=0.10, linewidth=0, zorder=0)
        axes.axvline(reach.trained, color=FAINT, linewidth=0.9, linestyle=":", zorder=1)
    if reach.defined < reach.length:
        ends = reach.defined, reach.length
        axes.axvspan(*ends, facecolor="none", edgecolor=FAINT, hatch="////", linewidth=0)


def image(axes: Axes, table: np.ndarray, unit: str, signed: bool = False, **limits: float) -> None:
    """Values [rows, columns] as colours, the first row on top, with their scale; NaN stays empty.

    Args:
        signed: colours for values around zero.
    """
    largest = float(np.nanmax(np.abs(table))) or 1.0
    shown = axes.imshow(
        table, cmap="RdBu_r" if signed else "viridis", aspect="auto", interpolation="nearest",
        rasterized=True, extent=(0, table.shape[1], table.shape[0], 0),
        **({"vmin": -largest, "vmax": largest} if signed else limits),
    )  # fmt: skip
    bar = axes.figure.colorbar(shown, ax=axes, shrink=0.8, pad=0.02, aspect=25)
    bar.ax.tick_params(labelsize=6)
    bar.set_label(unit, fontsize=6.5)
    bar.outline.set_linewidth(0.4)


def side_by_side(axes: Axes, tables: np.ndarray, unit: str, gap: int = 1, **limits: float) -> list[int]:
    """Tables [N,T,S] as one image, a row for each query and a column for each key. Returns the column at
    which each begins."""
    empty = np.full((tables.shape[1], gap), np.nan)
    joined = np.concatenate([part for table in tables for part in (table, empty)][:-1], axis=1)
    image(axes, joined, unit, **limits)
    return [index * (tables.shape[2] + gap) for index in range(len(tables))]


def layer_color(index: int, count: int) -> Any:
    """The colour of one of several layers."""
    return matplotlib.colormaps["viridis"](0.18 + 0.67 * index / max(1, count - 1))
