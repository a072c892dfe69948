"""The curves of a summary: values by length, and under them the differences to the reference.

`plots` describes them once; `curves` draws the description with matplotlib, `interactive_curves` with plotly.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from zoo.comparison.formatting import display_name, panel_title
from zoo.errors import shorten
from zoo.figures.style import FAINT, GRID, INK, RC, Style, content, stacked, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as Interactive

HIGHEST = 1.5
"""Losses so far above the best (nats) are cut off; of bits per byte those beyond this factor."""
RATE = (-0.03, 1.03)
TICKS = 8
WIDEST, LABEL = 21, 60
"""Characters of a label that leaves room for a second panel, and of any label."""
LINEAR = 0.02
"""Smaller changes of the loss have a linear axis."""
LINE = 0.14
"""Inches of a line of text; axes have 0.8 of the height of their panel."""
ABOVE = "▲"
"""Marks a line that leaves through the top edge."""


@dataclass(frozen=True)
class Plot:
    """Lines over lengths.

    Attributes:
        lines: by label the rows of a curve, with `length`, `value`, the ends of its interval as `low` and
            `high`, the `values` of its seeds and a `note`.
        unit: the label of the vertical axis; `range` its ends.
        trained: the trained lengths.
        reference: the label whose values are zero in a plot of differences; empty in one of values.
        floor: by length a value that says nothing; below it the plot is grey.
        strong: labels that stand out.
        is_change: an axis that is linear between -LINEAR and LINEAR and logarithmic outside.
        texts: that stand for labels at the ends of the lines.
    """

    lines: Mapping[str, pd.DataFrame]
    unit: str
    range: tuple[float, float]
    trained: Sequence[int]
    reference: str = ""
    floor: Mapping[int, float] = field(default_factory=dict)
    strong: Sequence[str] = ()
    is_change: bool = False
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def lengths(self) -> list[int]:
        return sorted({length for curve in self.lines.values() for length in curve["length"]})

    def exits(self) -> list[tuple[str, float]]:
        """The label of each line that leaves through the top edge, and the length there."""
        found, top = [], self.range[1]
        for label, curve in self.lines.items():
            out = (curve["value"] > top) | curve["note"].fillna("").str.contains("not finite")
            last = curve.shift()
            part = (top - last["value"]) / (curve["value"] - last["value"])
            lengths = last["length"] * (curve["length"] / last["length"]) ** part
            lengths = lengths.fillna(curve["length"])[out & ~out.shift(fill_value=False)]
            found += [(label, length) for length in lengths]
        return found

    def ends(self) -> list[tuple[str, str, float, float]]:
        """Label, text, length and value at the end of each line."""
        found = []
        for label, curve in self.lines.items():
            there, text = curve[curve["value"].notna()], shorten(self.texts.get(label, label), LABEL)
            if there["value"].max() > self.range[1]:
                text += f" {ABOVE} {there['value'].max():,.4g}"
            elif len(there) and there["length"].max() < self.lengths[-1]:
                text += f", ends at {there['length'].max()}"
            last = there.iloc[-1] if len(there) else {"length": self.lengths[-1], "value": self.range[0]}
            found.append((label, text, last["length"], last["value"]))
        return found


def plots(panel: pd.DataFrame) -> list[Plot]:
    """The plot of a panel's values, and that of its differences where curves are compared."""
    first, trained = panel.iloc[0], panel["train_length"].unique().tolist()
    made = [Plot(_lines(panel, "mean"), display_name(first["measure"]), _range(panel), trained)]
    if isinstance(reference := first["reference"], str):
        unit = f"Δ vs. {reference}" if len(reference) < 14 else "Δ"
        made.append(Plot(_lines(panel, "difference"), unit, _range(panel, "difference"), trained, reference))
    return made


def _lines(panel: pd.DataFrame, column: str) -> dict[str, pd.DataFrame]:
    own = ["low", "high"] if column == "mean" else [f"{column}_low", f"{column}_high"]
    names = dict(zip([column, *own], ["value", "low", "high"], strict=True))
    rows = panel[["encoding", "length", "seeds", "values", "note", "rank", *names]].rename(columns=names)
    return {label: curve for label, curve in rows.groupby("encoding", sort=False)}


def _range(panel: pd.DataFrame, column: str = "mean") -> tuple[float, float]:
    """Bottom and top of the drawn values. Losses far above the best are cut off, and so are encodings whose
    highest loss is an outlier of those of all encodings (by Tukey's fence)."""
    best, start, room = panel["mean"].min(), 0.0, math.inf
    if panel["lower_is_better"].iloc[0]:
        room = HIGHEST if panel["measure"].iloc[0] == "loss_nats" else best * (HIGHEST - 1)
        start, room = (best, room) if column == "mean" else (0.0, room / 3)
        highest = panel.groupby("encoding")[column].max()
        low, high = highest.quantile([0.25, 0.75])
        fence = max(high + 1.5 * (high - low), start + room / 5)
        panel = panel[panel["encoding"].map(highest) <= fence]
    elif column == "mean":
        return RATE
    kept = [start, *panel.loc[panel[column] <= start + room, column]]
    ends = panel[["low", "high"] if column == "mean" else [f"{column}_low", f"{column}_high"]].stack()
    kept += [end for end in ends if min(kept) - room <= end <= start + room]
    margin = max(0.05 * (max(kept) - min(kept)), 0.004 * abs(start), 1e-6)
    return min(kept) - margin, max(kept) + margin


def _ticks(plot: Plot) -> dict[int, str]:
    """Lengths at the axis, far enough apart to be read: powers of two times the trained one come first."""
    lengths, trained = plot.lengths, {*plot.trained}
    anchor = next((length for length in lengths if length in trained), lengths[-1])
    apart = math.log2(lengths[-1] / lengths[0]) / TICKS
    ticks = [anchor]
    for length in sorted(lengths, key=lambda length: not math.log2(length / anchor).is_integer()):
        if length not in ticks and all(abs(math.log2(length / other)) >= apart for other in ticks):
            ticks.append(length)
    return {tick: f"{tick // 1024}k" if tick % 1024 == 0 else str(tick) for tick in sorted(ticks)}


def pictures(
    summary: pd.DataFrame, title: str = "", endings: Sequence[str] = (".png", ".svg")
) -> dict[str, bytes]:
    """The curves as files, by ending; none where nothing is finite."""
    if summary["mean"].isna().all():
        return {}
    import matplotlib

    files = {}
    with matplotlib.rc_context(RC):
        figure = curves(summary, title)
        for ending in endings:
            files[ending] = content(figure, ending, dpi=200)
            figure.set_layout_engine("none")  # the layout of the first file serves all
    return files


def curves(summary: pd.DataFrame, title: str = "") -> Figure:
    """A panel for each protocol: a line for each encoding with its label at the end, faint edges for its
    interval, a point for each seed, and the trained length; below it the differences to the reference with
    their own intervals."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [own for _, own in summary.groupby("panel") if own["mean"].notna().any()]
    labels = list(summary["encoding"].unique())
    looks, columns = styles(labels), min(2 if max(map(len, labels)) <= WIDEST else 1, len(panels))
    rows, lower = math.ceil(len(panels) / columns), summary["reference"].notna().any()
    upper_height = max(3.9 if columns == 1 else 2.75, LINE / 0.8 * (len(labels) + 1))
    height = rows * (upper_height + 1.15 * lower) + 0.5
    figure = Figure(figsize=(7.6, height), layout="constrained")
    FigureCanvasAgg(figure)
    drawn = [plots(panel) for panel in panels]
    for cell, panel, made in zip(figure.add_gridspec(rows, columns), panels, drawn, strict=False):
        cells = cell.subgridspec(len(made), 1, height_ratios=(2.6, 1.0)[: len(made)], hspace=0.04)
        below_each_other = cells.subplots(sharex=True, squeeze=False)[:, 0]
        for axes, plot in zip(below_each_other, made, strict=True):
            _draw(axes, plot, looks, 0 if plot.reference else LINE / 0.8 / upper_height)
        below_each_other[0].set_title(panel_title(panel), fontsize=8.5, pad=12)
        below_each_other[-1].set_xlabel(f"{panel['axis'].iloc[0]} (tokens)")
    intervals = [text.replace("interval", "CI") for text in summary["interval"].dropna().unique()]
    about = f"shaded: {'; '.join(intervals)}" if intervals else "no interval"
    about += "; points: seeds" * bool((summary["seeds"] > 1).any())
    about += f"; {ABOVE}: above the axis, up to the number" * any(bool(made[0].exits()) for made in drawn)
    figure.supxlabel("\n".join(textwrap.wrap(about, 110)), fontsize=6.5, color=INK)
    if title := ": ".join(filter(None, [title, *labels[: len(labels) == 1]])):
        figure.suptitle("\n".join(textwrap.wrap(title, 90)), fontsize=9.5)
    return figure


def one_plot(plot: Plot, title: str, fixed: Sequence[str] = (), suffix: str = ".png") -> bytes:
    """A plot by itself as a file. For `fixed` see `zoo.figures.style.styles`."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    height = max(2.6, LINE * (len(plot.lines) + 3))
    with rc_context(RC):
        figure = Figure(figsize=(7.0, height + 0.6), layout="constrained")
        axes = figure.subplots()
        _draw(axes, plot, styles(plot.lines, fixed), LINE / height)
        axes.set_title(title, fontsize=8.5, pad=12)
        return content(figure, suffix, dpi=200)


def _draw(axes: Axes, plot: Plot, looks: Mapping[str, Style], gap: float) -> None:
    """Draw a plot with matplotlib.

    Args:
        gap: of the labels at the ends of the lines, as a share of the height; 0 for no labels.
    """
    if plot.is_change:
        axes.set_yscale("symlog", linthresh=LINEAR)
        marks = [sign * mark for sign in (1, -1) for mark in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)]
        marks = [0.0, *(mark for mark in marks if plot.range[0] < mark < plot.range[1])]
        axes.set_yticks(marks, [f"{mark:+g}" if mark else "0" for mark in marks])
    axes.set_ylim(plot.range)
    _length_axis(axes, plot)
    if plot.reference:
        axes.axhline(0, color=looks[plot.reference].color, linewidth=1.0, zorder=1)
    if plot.floor:
        lengths, floor = [*plot.floor], [*plot.floor.values()]
        axes.fill_between(lengths, plot.range[0], floor, color=GRID, linewidth=0, zorder=0)
        axes.plot(lengths, floor, color=FAINT, linewidth=1, zorder=1)
    for label, curve in plot.lines.items():
        style, strong = looks[label], label in plot.strong
        if "values" in curve and not plot.reference:
            seeds = curve[["length", "values"]].itertuples(index=False)
            points = [(length, value) for length, own in seeds if len(own) > 1 for value in own.values()]
            look = {"color": style.color, "alpha": 0.45, "markersize": 2.6, "zorder": 2}
            axes.plot(*np.array(points).reshape(-1, 2).T, "o", **look)
        if "low" in curve:
            ends = curve["length"], curve["low"], curve["high"]
            axes.fill_between(*ends, color=style.color, alpha=0.05, linewidth=0)
            for end in ("low", "high"):
                axes.plot(curve["length"], curve[end], color=style.color, alpha=0.35, linewidth=0.5, zorder=1)
        there = curve[curve["value"].notna()]
        many = len(there) >= 10 or bool(plot.reference)
        axes.plot(
            there["length"], there["value"], color=style.color, linestyle=style.linestyle,
            marker=style.marker, linewidth=2.2 if strong else 1.0 if plot.reference else 1.3,
            markersize=2.6 if many else 4.2, markeredgecolor="white", markeredgewidth=0 if many else 0.4,
            zorder=4 if strong else 3,
        )  # fmt: skip
    for label, length in plot.exits():
        axes.plot(length, plot.range[1], "^", color=looks[label].color, markersize=4.5, clip_on=False)
    axes.set_ylabel(plot.unit, fontsize=7 if plot.reference else 8)
    if gap:
        _labels(axes, plot, looks, gap)
        notes = {"fontsize": 6.5, "color": FAINT, "textcoords": "offset points", "annotation_clip": True}
        for length in plot.trained:
            place = {"xycoords": ("data", "axes fraction"), "xytext": (0, 1.5), "ha": "center"}
            axes.annotate("trained", (length, 1.0), **place, **notes)


def _labels(axes: Axes, plot: Plot, looks: Mapping[str, Style], gap: float) -> None:
    """Write the label of each line beside its end, at least a gap from the others."""
    scale, last = axes.transData + axes.transAxes.inverted(), plot.lengths[-1]
    ends = [(*end, looks[end[0]].color) for end in plot.ends()]
    ends += [("", "floor", length, value, INK) for length, value in [*plot.floor.items()][-1:]]
    wanted = [scale.transform((length, value))[1] for _, _, length, value, _ in ends]
    order = np.argsort(wanted, kind="stable")
    heights = _apart(np.array(wanted)[order].clip(0, 1), gap)
    for (label, text, length, value, color), height in zip([ends[at] for at in order], heights, strict=True):
        line = {
            "arrowstyle": "-",
            "color": color,
            "linewidth": 0.4,
            "alpha": 0.6,
            "shrinkA": 0,
            "relpos": (0, 0.5),
        }
        axes.annotate(
            text, (length, min(value, plot.range[1])), (1.02, height), textcoords="axes fraction", fontsize=7,
            va="center", color=color, fontweight="normal" if label and label not in plot.strong else "bold",
            annotation_clip=False, arrowprops=line if length == last else None,
        )  # fmt: skip


def _apart(values: np.ndarray, gap: float) -> np.ndarray:
    """The heights from 0 to 1 nearest to ascending values that are at least a gap apart."""
    steps = gap * np.arange(len(values))
    flat = values - steps
    flat = (np.maximum.accumulate(flat) + np.minimum.accumulate(flat[::-1])[::-1]) / 2
    return flat.clip(0, max(0, 1 - steps[-1])) + steps


def _length_axis(axes: Axes, plot: Plot) -> None:
    ticks, lengths = _ticks(plot), plot.lengths
    axes.set_xscale("log", base=2)
    one = plot.trained[0] if len(plot.trained) == 1 else None
    axes.set_xticks([*ticks], [text + f"\n{at / one:g}x" * bool(one) for at, text in ticks.items()])
    axes.minorticks_off()
    margin = (lengths[-1] / lengths[0]) ** 0.04 if lengths[-1] > lengths[0] else 1.1
    axes.set_xlim(lengths[0] / margin, lengths[-1] * margin)
    axes.grid(axis="y", color=GRID, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    for length in plot.trained:
        axes.axvline(length, color=FAINT, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=0)


def interactive_curves(panel: pd.DataFrame, labels: Iterable[str]) -> Interactive:
    """The rows of one panel as a figure of plotly, with intervals as error bars.

    Args:
        labels: all of the page, which decide the colours.
    """
    looks, made = styles(labels), plots(panel)
    ticks = _ticks(made[0])
    figure = stacked([0.7, 0.3][: len(made)], 0.04)
    for row, plot in enumerate(made, 1):
        for label, curve in plot.lines.items():
            above, below = curve["high"] - curve["value"], curve["value"] - curve["low"]
            figure.add_scatter(
                x=curve["length"], y=curve["value"], name=escape(label), legendgroup=label, row=row, col=1,
                error_y={"array": above, "arrayminus": below, "thickness": 0.7, "width": 2},
                line=looks[label].line, mode="lines+markers", showlegend=not plot.reference,
            )  # fmt: skip
        for label, length in plot.exits():
            figure.add_annotation(
                x=math.log10(length), y=plot.range[1], text="▲", row=row, col=1, showarrow=False,
                font={"color": looks[label].color},
            )  # fmt: skip
        title = escape(plot.unit)
        figure.update_yaxes(title=title, range=plot.range, hoverformat=".4f", row=row, col=1)
    figure.update_xaxes(type="log", tickvals=[*ticks], ticktext=[*ticks.values()])
    figure.update_xaxes(title=f"{panel['axis'].iloc[0]} (tokens)", row=len(made), col=1)
    for length in sorted(set(panel["train_length"])):
        figure.add_vline(length, line={"color": FAINT, "dash": "dot"})
    return figure.update_layout(height=290 + 150 * len(made) + 20 * len(made[0].lines), hovermode="closest")
