"""Functions that draw on matplotlib axes: curves of heads, matrices, maps, and the trained length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from zoo.figures.style import FAINT, INK

DASHED = ("-", "--", "-.", ":")
LEGEND: dict[str, Any] = {
    "fontsize": 6, "handlelength": 2.2, "columnspacing": 1.2, "frameon": False, "labelspacing": 0.2,
}  # fmt: skip


@dataclass(frozen=True)
class Reach:
    """Tokens on an axis: drawn to `length`, trained to `trained`, defined to `defined`."""

    trained: int
    length: int
    defined: int

    @property
    def note(self) -> str:
        return f" Refused beyond {self.defined} tokens." if self.defined < self.length else ""


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
    if count <= most:
        return list(range(count))
    return [round(index * (count - 1) / (most - 1)) for index in range(most)]


def mark_trained(axes: Axes, reach: Reach, name: str) -> None:
    """Label the axis of positions or distances, and mark the trained length and the end of the encoding."""
    axes.set_xlim(0, reach.length)
    axes.set_xlabel(name, labelpad=1)
    ticks = sorted({0, reach.trained, (reach.trained + reach.length) // 2, reach.length})
    marked = reach.trained < reach.length
    axes.set_xticks(ticks, [f"{at}\ntrained" if marked and at == reach.trained else str(at) for at in ticks])
    if marked:
        axes.axvspan(reach.trained, reach.length, color=FAINT, alpha=0.10, linewidth=0, zorder=0)
        axes.axvline(reach.trained, color=FAINT, linewidth=0.9, linestyle=":", zorder=1)
    if reach.defined < reach.length:
        axes.axvspan(
            reach.defined, reach.length, facecolor="none", edgecolor=FAINT, hatch="////", linewidth=0
        )


def plain_log(axes: Axes, base: int = 10) -> None:
    """A logarithmic vertical axis with its numbers written out."""
    axes.set_yscale("log", base=base)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: "")


def heads(
    axes: Axes,
    x: np.ndarray,
    values: np.ndarray,
    color: str,
    low: np.ndarray | None = None,
    high: np.ndarray | None = None,
) -> None:
    """A line for each head, values [H,N], with its interval where `low` and `high` [H,N] are given."""
    for head, (line, shade) in enumerate(zip(values, shades(color, len(values)), strict=True)):
        if low is not None and high is not None:
            axes.fill_between(x, low[head], high[head], color=shade, alpha=0.18, linewidth=0)
        look = {"color": shade, "linestyle": DASHED[head % len(DASHED)], "linewidth": 1.2}
        axes.plot(x, line, zorder=3, label=f"head {head + 1}", **look)
    if 1 < len(values) <= 8:
        axes.legend(ncols=2, loc="best", **LEGEND)


def image(axes: Axes, table: np.ndarray, unit: str, signed: bool = False, **options: Any) -> Any:
    """Values [rows, columns] as colours, the first row on top, with their scale; NaN stays empty.

    Args:
        signed: colours for values around zero.
    """
    largest = float(np.nanmax(np.abs(table))) or 1.0
    limits = {"vmin": -largest, "vmax": largest} if signed else {}
    shown = axes.imshow(
        table, cmap="RdBu_r" if signed else "viridis", aspect="auto", interpolation="nearest",
        rasterized=True, extent=(0, table.shape[1], table.shape[0], 0), **{**limits, **options},
    )  # fmt: skip
    bar = axes.figure.colorbar(shown, cax=axes.inset_axes((1.02, 0.08, 0.03, 0.8)))
    bar.ax.tick_params(labelsize=6)
    bar.set_label(unit, fontsize=6.5)
    bar.outline.set_linewidth(0.4)
    return shown


def matrices(
    axes: Axes, tables: np.ndarray, names: Sequence[str], trained: int, unit: str, depth: float
) -> None:
    """Tables [N,T,S] side by side, a row for each query and a column for each key.

    Args:
        depth: values farther below the highest have one colour.
    """
    count, size = len(tables), tables.shape[-1]
    gap = np.full((size, max(1, size // 12)), np.nan)
    wide = size + gap.shape[1]
    joined = np.concatenate([part for table in tables for part in (table, gap)][:-1], axis=1)
    high = float(np.nanmax(joined))
    image(axes, joined, unit, vmin=max(float(np.nanmin(joined)), high - depth), vmax=high)
    ticks = [index * wide + at for index in range(count) for at in (0, trained) if at < size]
    labels = [str(tick % wide) for tick in ticks]
    axes.set_xticks(ticks, labels)
    axes.set_yticks([tick for tick in (0, trained, size) if tick <= size])
    axes.set_xlabel("keys of " + " | of ".join(names), labelpad=1)
    axes.set_ylabel("query")
    if trained < size:
        axes.axhline(trained, color=INK, linewidth=0.8, linestyle=":")
        for index in range(count):
            axes.axvline(index * wide + trained, color=INK, linewidth=0.8, linestyle=":")


def layer_color(index: int, count: int) -> Any:
    """The colour of one of several layers."""
    return matplotlib.colormaps["viridis"](0.18 + 0.67 * index / max(1, count - 1))
