"""The curves of a summary: values by length, and under them the differences to the reference.

`plots` describes them once; `curves` draws the description with matplotlib, `interactive_curves` with plotly.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import pandas as pd

from zoo.comparison.formatting import display_name, panel_title
from zoo.errors import shorten
from zoo.figures.style import FAINT, GRID, INK, RC, Style, content, stacked, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from plotly.graph_objects import Figure as Interactive

HIGHEST = 1.5
"""Losses so far above the best (nats) are cut off; of bits per byte those beyond this factor."""
RATE = (-0.03, 1.03)
TICKS = 8
WIDEST, LABEL = 21, 60
"""Characters of a label that leaves room for a second panel, and of any label."""
ABOVE = "▲"
"""Marks a line that leaves through the top edge."""


@dataclass(frozen=True)
class Plot:
    """Lines over the lengths of a panel.

    Attributes:
        lines: by label the rows of a curve, with `value` and the ends of its interval as `low` and `high`.
        unit: the label of the vertical axis; `range` its ends.
        reference: the label whose values are zero in a plot of differences; empty in one of values.
    """

    lines: Mapping[str, pd.DataFrame]
    unit: str
    range: tuple[float, float]
    reference: str = ""

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

    def ends(self) -> dict[str, str]:
        """The text of each label, in the order of the ends of the lines, the highest first."""
        values = {label: curve["value"].dropna() for label, curve in self.lines.items()}
        last = {label: own.iloc[-1] if len(own) else -math.inf for label, own in values.items()}
        highest = {label: own.max() for label, own in values.items() if own.max() > self.range[1]}
        above = {label: f" {ABOVE} {value:,.4g}" for label, value in highest.items()}
        return {
            label: shorten(label, LABEL) + above.get(label, "")
            for label in sorted(values, key=last.__getitem__, reverse=True)
        }


def plots(panel: pd.DataFrame) -> list[Plot]:
    """The plot of a panel's values, and that of its differences where curves are compared."""
    first = panel.iloc[0]
    made = [Plot(_lines(panel, "mean"), display_name(first["measure"]), _range(panel))]
    if isinstance(reference := first["reference"], str):
        unit = f"Δ vs. {reference}" if len(reference) < 14 else "Δ"
        made.append(Plot(_lines(panel, "difference"), unit, _range(panel, "difference"), reference))
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


def _ticks(panel: pd.DataFrame) -> dict[int, str]:
    """Lengths at the axis, far enough apart to be read: powers of two times the trained one come first."""
    lengths, trained = sorted(panel["length"].unique().tolist()), set(panel["train_length"])
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
    # A line of text has 0.14 inches; axes have 0.8 of the height.
    upper_height = max(3.9 if columns == 1 else 2.75, 0.14 * len(labels) + 0.3)
    height = rows * (upper_height + 1.15 * lower) + 0.5
    figure = Figure(figsize=(7.6, height), layout="constrained")
    FigureCanvasAgg(figure)
    drawn = [plots(panel) for panel in panels]
    for cell, panel, made in zip(figure.add_gridspec(rows, columns), panels, drawn, strict=False):
        cells = cell.subgridspec(len(made), 1, height_ratios=(2.6, 1.0)[: len(made)], hspace=0.04)
        below_each_other = cells.subplots(sharex=True, squeeze=False)[:, 0]
        for axes, plot in zip(below_each_other, made, strict=True):
            _draw(axes, plot, panel, looks)
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


def _draw(axes: Axes, plot: Plot, panel: pd.DataFrame, looks: Mapping[str, Style]) -> None:
    """Draw a plot with matplotlib. Beside one of values are its labels, in the order of the lines' ends."""
    axes.set_ylim(plot.range)
    if plot.reference:
        axes.axhline(0, color=looks[plot.reference].color, linewidth=1.0, zorder=1)
    drawn: dict[str, Line2D] = {}
    for label, curve in plot.lines.items():
        style, seeds = looks[label], curve[["length", "values"]].itertuples(index=False)
        if not plot.reference:
            points = [(length, value) for length, own in seeds for value in own.values()]
            if curve["seeds"].iloc[0] > 1 and points:
                look = {"color": style.color, "alpha": 0.45, "markersize": 2.6, "zorder": 2}
                axes.plot(*zip(*points, strict=True), "o", **look)
        there = curve[curve["value"].notna()]
        ends = curve["length"], curve["low"], curve["high"]
        axes.fill_between(*ends, color=style.color, alpha=0.05, linewidth=0)
        for end in ("low", "high"):
            axes.plot(curve["length"], curve[end], color=style.color, alpha=0.35, linewidth=0.5, zorder=1)
        many = len(there) >= 10 or bool(plot.reference)
        (drawn[label],) = axes.plot(
            there["length"], there["value"], color=style.color, linestyle=style.linestyle,
            marker=style.marker, linewidth=1.0 if plot.reference else 1.4, markersize=2.6 if many else 4.4,
            markeredgecolor="white", markeredgewidth=0 if many else 0.4, zorder=3,
        )  # fmt: skip
    _length_axis(axes, panel)
    for label, length in plot.exits():
        axes.plot(length, plot.range[1], "^", color=looks[label].color, markersize=4.5, clip_on=False)
    axes.set_ylabel(plot.unit, fontsize=7 if plot.reference else 8)
    if plot.reference:
        return
    ends = plot.ends()
    axes.legend(
        [drawn[label] for label in ends], ends.values(), loc="center left", bbox_to_anchor=(1.0, 0.5),
        labelcolor="linecolor", fontsize=7, frameon=False, handlelength=2.0, labelspacing=0.25,
    )  # fmt: skip
    notes = {"fontsize": 6.5, "color": FAINT, "textcoords": "offset points", "annotation_clip": True}
    for length in panel["train_length"].unique():
        place = {"xycoords": ("data", "axes fraction"), "xytext": (0, 1.5), "ha": "center"}
        axes.annotate("trained", (length, 1.0), **place, **notes)


def _length_axis(axes: Axes, panel: pd.DataFrame) -> None:
    ticks, ends = _ticks(panel), (panel["length"].min(), panel["length"].max())
    axes.set_xscale("log", base=2)
    axes.set_xticks([*ticks], [*ticks.values()])
    axes.minorticks_off()
    margin = (ends[1] / ends[0]) ** 0.04 if ends[1] > ends[0] else 1.1
    axes.set_xlim(ends[0] / margin, ends[1] * margin)
    axes.grid(axis="y", color=GRID, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    for length in panel["train_length"].unique():
        axes.axvline(length, color=FAINT, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=0)


def interactive_curves(panel: pd.DataFrame, labels: Iterable[str]) -> Interactive:
    """The rows of one panel as a figure of plotly, with intervals as error bars.

    Args:
        labels: all of the page, which decide the colours.
    """
    looks, made, ticks = styles(labels), plots(panel), _ticks(panel)
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
