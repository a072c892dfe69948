"""What panels are drawn with: curves of heads, matrices, and the mark of the trained length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from zoo.figures.style import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HATCH = "////"
MASKED = "#e6e6e6"
"""Of pairs that the mask hides."""
HEADS = 2
"""Matrices in a panel."""
DASHED = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))


@dataclass(frozen=True)
class Reach:
    """How far a panel goes, in tokens: to `length`, trained to `trained`, and defined to `defined`."""

    trained: int
    length: int
    defined: int

    @property
    def said(self) -> str:
        return f" Refused beyond {self.defined} tokens." if self.defined < self.length else ""


def shades(color: str, count: int) -> list[tuple[float, float, float]]:
    """Of one hue from dark to light: of the heads of one encoding."""
    from matplotlib.colors import to_rgb

    full = np.array(to_rgb(color))
    mixes = np.linspace(-0.45, 0.55, count) if count > 1 else [0.0]
    return [tuple(full * (1 + mix) if mix < 0 else full + (1 - full) * mix) for mix in mixes]


def mark_reach(axes: Axes, reach: Reach, name: str = "distance (tokens)") -> None:
    """The axis of positions or distances, with what lies beyond the trained length, or is refused."""
    axes.set_label("over x")
    axes.set_xlim(0, reach.length)
    axes.set_xlabel(name, labelpad=1)
    marked = reach.trained < reach.length
    axes.set_xticks(ticks(reach), [
        f"{tick}\ntrained" if marked and tick == reach.trained else str(tick) for tick in ticks(reach)
    ])  # fmt: skip
    if marked:
        axes.axvspan(reach.trained, reach.length, color=FAINT, alpha=0.10, linewidth=0, zorder=0)
        axes.axvline(reach.trained, color=FAINT, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=1)
    if reach.defined < reach.length:
        axes.axvspan(reach.defined, reach.length, facecolor="none", edgecolor=FAINT, hatch=HATCH, linewidth=0)
        axes.text(
            (reach.defined + reach.length) / 2, 0.5, f"refused beyond\n{reach.defined} tokens", ha="center",
            va="center", fontsize=7, transform=axes.get_xaxis_transform(), zorder=6,
            bbox={"facecolor": "#ffffff", "edgecolor": "none", "pad": 2},
        )  # fmt: skip


def ticks(reach: Reach) -> list[int]:
    """Positions that are written at an axis: multiples of the trained length where these are few."""
    count = reach.length // reach.trained
    if count <= 6:
        between = [reach.trained * number for number in range(2, count + 1)]
    else:
        between = [round(reach.length * part / 4) for part in (1, 2, 3)]
    apart = reach.length / 9
    kept = [one for one in between if one - reach.trained > apart and reach.length - one > apart]
    return sorted({0, reach.trained, *kept, reach.length})


def plain_log(axes: Axes, base: int = 10) -> None:
    """A logarithmic vertical axis whose numbers are written out; 2 and 5 too where there are few decades."""
    axes.set_yscale("log", base=base)

    def between(value: float, _: int) -> str:
        low, high = axes.get_ylim()
        digit = f"{value:e}"[0]
        return f"{value:g}" if high / low < 50 and base == 10 and digit in "25" else ""

    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(between)


def curves_of_heads(
    axes: Axes,
    x: np.ndarray,
    values: np.ndarray,
    color: str,
    edges: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """A line for each head, values [H,N], and where there are edges, [H,N] each, its interval."""
    for head, (line, shade) in enumerate(zip(values, shades(color, len(values)), strict=True)):
        if edges is not None:
            axes.fill_between(x, edges[0][head], edges[1][head], color=shade, alpha=0.18, linewidth=0)
        axes.plot(
            x, line, color=shade, linestyle=DASHED[head % len(DASHED)], linewidth=1.2, zorder=3,
            label=f"head {head + 1}",
        )  # fmt: skip
    if 1 < len(values) <= 8:
        axes.legend(frameon=False, fontsize=6, handlelength=2.2, ncols=2, loc="best", labelspacing=0.2)


def chosen_heads(count: int) -> list[int]:
    """The heads whose matrices are drawn: the first and the last."""
    return sorted({round(index) for index in np.linspace(0, count - 1, min(HEADS, count))})


def matrices(
    axes: Axes, tables: np.ndarray, heads: Sequence[int], reach: Reach, limits: tuple[float, float], said: str
) -> None:
    """Tables [h,T,S] of some heads beside each other, rows of queries; NaN is what the mask hides."""
    from matplotlib.colors import Normalize

    axes.set_axis_off()
    low, high = limits
    signed = low < 0 < high and min(-low, high) > 0.1 * max(-low, high)
    norm = Normalize(-max(-low, high), max(-low, high)) if signed else Normalize(low, high)
    _narrow(axes)
    width = 1 / len(heads)
    shown_ticks = [0, reach.trained, reach.length][: 2 + (reach.trained < reach.length)]
    for index, (head, table) in enumerate(zip(heads, tables, strict=True)):
        inner = axes.inset_axes((index * width, 0.0, width * 0.9, 0.97))
        shown = inner.imshow(
            table, cmap=_map("RdBu_r" if signed else "viridis"), norm=norm, interpolation="nearest",
            extent=(0, table.shape[1], table.shape[0], 0), rasterized=True,
        )  # fmt: skip
        inner.set_label("over xy")
        inner.set_xlim(0, reach.length)
        inner.set_ylim(reach.length, 0)
        inner.set_title(f"head {head + 1}", fontsize=6.5, pad=2)
        inner.set_xticks(shown_ticks, map(str, shown_ticks), fontsize=6)
        inner.set_yticks(
            shown_ticks, map(str, shown_ticks) if index == 0 else [""] * len(shown_ticks), fontsize=6
        )
        inner.set_xlabel("key", fontsize=6.5, labelpad=1)
        if index == 0:
            inner.set_ylabel("query", fontsize=6.5, labelpad=1)
        if reach.trained < reach.length:
            look = {"color": INK, "linewidth": 0.8, "linestyle": (0, (1, 1.5))}
            inner.axvline(reach.trained, **look)
            inner.axhline(reach.trained, **look)
        if reach.defined < reach.length:
            inner.text(
                reach.length * 0.97, reach.length * 0.05, f"refused\nbeyond {reach.defined}", fontsize=5.5,
                ha="right", va="top",
            )  # fmt: skip
    colour_bar(axes, shown, said)


def _narrow(axes: Axes) -> None:
    """Leave room beside it for the scale of its colours."""
    box = axes.get_position()
    axes.set_position((box.x0, box.y0, box.width * 0.84, box.height))


def colour_bar(axes: Axes, shown, said: str) -> None:
    bar = axes.figure.colorbar(shown, cax=axes.inset_axes((1.02, 0.08, 0.03, 0.8)))
    bar.ax.tick_params(labelsize=6)
    bar.set_label(said, fontsize=6.5)
    bar.outline.set_linewidth(0.4)


def heat_map(
    axes: Axes, table: np.ndarray, reach: Reach, limits: tuple[float, float], across: str, said: str
) -> None:
    """Values [N,W] of each position, to the right, and each dimension."""
    _narrow(axes)
    largest = max(abs(limits[0]), abs(limits[1]), 1e-9)
    shown = axes.imshow(
        table.T, aspect="auto", cmap=_map("RdBu_r"), vmin=-largest, vmax=largest, interpolation="nearest",
        extent=(0, table.shape[0], table.shape[1], 0), rasterized=True,
    )  # fmt: skip
    mark_reach(axes, reach, "position (tokens)")
    axes.axvline(reach.trained, color=INK, linewidth=0.9, linestyle=(0, (1, 1.5)))
    axes.set_ylabel(across)
    colour_bar(axes, shown, said)


def _map(name: str):
    import matplotlib

    return matplotlib.colormaps[name].with_extremes(bad=MASKED)
