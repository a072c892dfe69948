"""The curves of a summary: values by length, and under them the differences to the reference.

`plots` describes them once; `curves` draws the description with matplotlib, `interactive_curves` with plotly.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from zoo.comparison.formatting import display_name, number, panel_title, signed
from zoo.figures.style import FAINT, GRID, INK, MARKERS, METADATA, RC, Style, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as Interactive

HIGHEST = 1.5
"""Losses so far above the best (nats) are cut off; of bits per byte those beyond this factor."""
RATE = (-0.03, 1.03)
TICKS = 8
SYMBOLS = dict(
    zip(MARKERS, ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross"), strict=True)
)
"""Matplotlib's markers as plotly names them."""


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
    """Bottom and top of the drawn values; losses far above the best are cut off."""
    values, best = panel[column].dropna(), panel["mean"].min()
    if panel["lower_is_better"].iloc[0]:
        room = HIGHEST if panel["measure"].iloc[0] == "loss_nats" else best * (HIGHEST - 1)
        start, room = (best, room) if column == "mean" else (0.0, room / 3)
    elif column == "mean":
        return RATE
    else:
        start, room = 0.0, math.inf
    kept = [start, *values[values <= start + room]]
    ends = panel[["low", "high"] if column == "mean" else [f"{column}_low", f"{column}_high"]].stack()
    kept += [end for end in ends if min(kept) - room <= end <= start + room]
    margin = max(0.05 * (max(kept) - min(kept)), 0.004 * abs(start), 1e-6)
    return min(kept) - margin, max(kept) + (2.5 if values.max() > start + room else 1) * margin


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
            content = io.BytesIO()
            figure.savefig(content, format=ending[1:], dpi=200, metadata=METADATA[ending])
            files[ending] = content.getvalue()
            figure.set_layout_engine("none")  # the layout of the first file serves both
    return files


def curves(summary: pd.DataFrame, title: str = "") -> Figure:
    """A panel for each protocol: a line for each encoding, faint edges for its interval, a point for each
    seed, and the trained length; below it the differences to the reference with their own intervals."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [own for _, own in summary.groupby("panel") if own["mean"].notna().any()]
    labels = list(summary["encoding"].unique())
    looks, columns = styles(labels), min(2, len(panels))
    rows, per_line = math.ceil(len(panels) / columns), 2 if max(map(len, labels)) > 21 else 4
    lower = summary["reference"].notna().any()
    height = rows * ((3.9 if columns == 1 else 2.75) + 1.15 * lower)
    height += 0.17 * math.ceil(len(labels) / per_line) + 0.5
    figure = Figure(figsize=(7.0, height), layout="constrained")
    FigureCanvasAgg(figure)
    grid, handles = figure.add_gridspec(rows, columns), {}
    for index, panel in enumerate(panels):
        made = plots(panel)
        cells = grid[index // columns, index % columns].subgridspec(
            len(made), 1, height_ratios=(2.6, 1.0)[: len(made)], hspace=0.04
        )
        upper = figure.add_subplot(cells[0])
        handles |= _draw(upper, made[0], panel, looks)
        upper.set_title(panel_title(panel), fontsize=8.5, pad=12)
        if len(made) > 1:
            upper.set_xlabel("")
            upper.tick_params(labelbottom=False)
            _draw(figure.add_subplot(cells[1], sharex=upper), made[1], panel, looks)
    about = "\n".join(textwrap.wrap(_about(summary), 110))
    if len(labels) == 1:
        title = f"{title}: {labels[0]}" if title else labels[0]
        figure.supxlabel(about, fontsize=6.5, color=INK)
    else:
        figure.legend(
            list(handles.values()), list(handles), frameon=False, handlelength=2.6, title=about,
            title_fontsize=6.5, ncols=min(per_line, len(labels)), loc="outside lower center",
        )  # fmt: skip
    if title:
        figure.suptitle(title, fontsize=9.5)
    return figure


def _draw(axes: Axes, plot: Plot, panel: pd.DataFrame, looks: Mapping[str, Style]) -> dict[str, Any]:
    """Draw a plot with matplotlib; returns the line of each encoding."""
    axes.set_ylim(plot.range)
    if plot.reference:
        axes.axhline(0, color=looks[plot.reference].color, linewidth=1.0, zorder=1)
    handles = {}
    for label, curve in plot.lines.items():
        style, seeds = looks[label], curve[["length", "values"]].itertuples(index=False)
        if not plot.reference:
            points = [(length, value) for length, own in seeds for value in own.values()]
            if curve["seeds"].iloc[0] > 1 and points:
                look = {"color": style.color, "alpha": 0.45, "markersize": 2.6, "zorder": 2}
                axes.plot(*zip(*points, strict=True), "o", **look)
            above = curve[
                (curve["value"] > plot.range[1]) | curve["note"].fillna("").str.contains("not finite")
            ]
            if len(above):
                tops = [plot.range[1]] * len(above)
                axes.plot(above["length"], tops, "^", color=style.color, markersize=4.5, clip_on=False)
        there = curve[curve["value"].notna()]
        if not len(there):
            continue
        axes.fill_between(
            curve["length"], curve["low"], curve["high"], color=style.color, alpha=0.05, linewidth=0
        )
        for end in ("low", "high"):
            axes.plot(curve["length"], curve[end], color=style.color, alpha=0.35, linewidth=0.5, zorder=1)
        many = len(there) >= 10 or bool(plot.reference)
        (handles[label],) = axes.plot(
            there["length"], there["value"], color=style.color, linestyle=style.linestyle,
            marker=style.marker, linewidth=1.0 if plot.reference else 1.4, markersize=2.6 if many else 4.4,
            markeredgecolor="white", markeredgewidth=0 if many else 0.4, zorder=3,
        )  # fmt: skip
    _length_axis(axes, panel)
    if plot.reference:
        axes.set_ylabel(plot.unit, fontsize=7)
        return handles
    axes.set_ylabel(plot.unit)
    notes = {"fontsize": 6.5, "color": FAINT, "textcoords": "offset points", "annotation_clip": True}
    for length in panel["train_length"].unique():
        place = {"xycoords": ("data", "axes fraction"), "xytext": (0, 1.5), "ha": "center"}
        axes.annotate("trained", (length, 1.0), **place, **notes)
    if panel["mean"].max() > plot.range[1]:
        text = f"▲ above the picture, up to {panel['mean'].max():,.4g}"
        place = {"xycoords": "axes fraction", "xytext": (0, -3), "ha": "right", "va": "top"}
        axes.annotate(text, (1.0, 1.0), **place, **notes)
    return handles


def _length_axis(axes: Axes, panel: pd.DataFrame) -> None:
    ticks, ends = _ticks(panel), (panel["length"].min(), panel["length"].max())
    axes.set_xscale("log", base=2)
    axes.set_xticks([*ticks], [*ticks.values()])
    axes.minorticks_off()
    margin = (ends[1] / ends[0]) ** 0.04 if ends[1] > ends[0] else 1.1
    axes.set_xlim(ends[0] / margin, ends[1] * margin)
    axes.set_xlabel(f"{panel['axis'].iloc[0]} (tokens)")
    axes.grid(axis="y", color=GRID, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    for length in panel["train_length"].unique():
        axes.axvline(length, color=FAINT, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=0)


def _about(summary: pd.DataFrame) -> str:
    intervals = [text.replace("interval", "CI") for text in summary["interval"].dropna().unique()]
    texts = [f"shaded: {'; '.join(intervals)}" if intervals else "no interval"]
    return "; ".join([*texts, *["points: seeds"] * bool((summary["seeds"] > 1).any())])


def interactive_curves(panel: pd.DataFrame, labels: Iterable[str]) -> Interactive:
    """The rows of one panel as a figure of plotly.

    Args:
        labels: all of the page, which decide the colours.
    """
    from plotly.subplots import make_subplots

    looks, made = styles(labels), plots(panel)
    heights = [0.7, 0.3][: len(made)]
    figure = make_subplots(rows=len(made), shared_xaxes=True, row_heights=heights, vertical_spacing=0.04)
    for row, plot in enumerate(made, 1):
        for label, curve in plot.lines.items():
            _scatter(figure, row, plot, curve, looks[label])
        figure.update_yaxes(title=escape(plot.unit), range=plot.range, row=row, col=1)
    ticks = _ticks(panel)
    figure.update_xaxes(type="log", tickvals=[*ticks], ticktext=[*ticks.values()], gridcolor=GRID)
    figure.update_xaxes(title=f"{panel['axis'].iloc[0]} (tokens)", row=len(made), col=1)
    figure.update_yaxes(gridcolor=GRID, zerolinecolor="#999999", automargin=True)
    for length in sorted(set(panel["train_length"])):
        figure.add_vline(length, line={"color": FAINT, "dash": "dot"})
    figure.update_layout(
        height=290 + 150 * len(made) + 20 * len(made[0].lines), plot_bgcolor="white", hovermode="closest",
        margin={"l": 60, "r": 10, "t": 30, "b": 10}, font={"color": INK},
        legend={"orientation": "h", "yanchor": "top", "y": -0.16},
    )  # fmt: skip
    return figure


def _scatter(figure: Interactive, row: int, plot: Plot, curve: pd.DataFrame, style: Style) -> None:
    """Add a curve and the band of its interval; the legend switches all traces of an encoding."""
    label, there = curve["encoding"].iloc[0], curve[curve["value"].notna()]
    known = there[there["low"].notna()]
    both = {"legendgroup": label, "row": row, "col": 1}
    if len(known):
        figure.add_scatter(
            x=[*known["length"], *known["length"][::-1]], y=[*known["high"], *known["low"][::-1]],
            fill="toself", fillcolor=style.color, opacity=0.12, line={"width": 0}, mode="lines",
            hoverinfo="skip", showlegend=False, **both,
        )  # fmt: skip
    if not len(there) and plot.reference:
        return
    figure.add_scatter(
        x=there["length"], y=there["value"], name=escape(label), hoverinfo="text", mode="lines+markers",
        text=[_hover(label, point, plot) for point in there.itertuples()], line=style.line,
        marker={"symbol": SYMBOLS[style.marker]}, showlegend=not plot.reference, **both,
    )  # fmt: skip


def _hover(label: str, point: Any, plot: Plot) -> str:
    text = signed if plot.reference else number
    ends = "" if math.isnan(point.low) else f" [{text(point.low)} to {text(point.high)}]"
    rank = "" if math.isnan(point.rank) else f"<br>rank {point.rank:.0f}"
    seeds = (
        [] if plot.reference else [f"<br>seed {seed}: {number(one)}" for seed, one in point.values.items()]
    )
    return f"{escape(label)} at {point.length}: {text(point.value)}{ends}{rank}{''.join(seeds)}"
