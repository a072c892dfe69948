"""The curves of a summary: values by length, and under them the differences to the reference."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Sequence
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
    height = rows * ((3.9 if columns == 1 else 2.75) + 1.15 * lower) + 0.17 * math.ceil(
        len(labels) / per_line
    )
    figure = Figure(figsize=(7.0, height + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(rows, columns)
    handles: dict[str, Any] = {}
    for index, panel in enumerate(panels):
        cell = grid[index // columns, index % columns]
        if panel["reference"].isna().all():
            handles |= _values(figure.add_subplot(cell), panel, looks)
            continue
        upper, below = cell.subgridspec(2, 1, height_ratios=(2.6, 1.0), hspace=0.04)
        axes = figure.add_subplot(upper)
        handles |= _values(axes, panel, looks)
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)
        _differences(figure.add_subplot(below, sharex=axes), panel, looks)
    about = "\n".join(textwrap.wrap(_about(summary), 110))
    if len(labels) == 1:
        title = f"{title}: {labels[0]}" if title else labels[0]
    else:
        figure.legend(
            list(handles.values()), list(handles), frameon=False, handlelength=2.6, title=about,
            title_fontsize=6.5, ncols=min(per_line, len(labels)), loc="outside lower center",
        )  # fmt: skip
    if len(labels) == 1:
        figure.supxlabel(about, fontsize=6.5, color=INK)
    if title:
        figure.suptitle(title, fontsize=9.5)
    return figure


def _values(axes: Axes, panel: pd.DataFrame, looks: dict[str, Style]) -> dict[str, Any]:
    """Draw the values; returns the line of each encoding."""
    low, high = _range(panel)
    axes.set_ylim(low, high)
    handles = {}
    for label, curve in panel.groupby("encoding", sort=False):
        style = looks[label]
        points = [
            (length, value)
            for length, seeds in zip(curve["length"], curve["values"], strict=True)
            for value in seeds.values()
        ]
        if curve["seeds"].iloc[0] > 1 and points:
            axes.plot(
                *zip(*points, strict=True), "o", color=style.color, alpha=0.45, markersize=2.6, zorder=2
            )
        if curve["mean"].notna().any():
            handles[label] = _line(axes, style, curve, "mean", "low", "high")
        above = curve[(curve["mean"] > high) | curve["note"].fillna("").str.contains("not finite")]
        if len(above):
            tops = [high] * len(above)
            axes.plot(above["length"], tops, "^", color=style.color, markersize=4.5, clip_on=False)
    _length_axis(axes, panel)
    for length in panel["train_length"].unique():
        axes.annotate(
            "trained", (length, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 1.5), ha="center",
            textcoords="offset points", fontsize=6.5, color=FAINT, annotation_clip=True,
        )  # fmt: skip
    axes.set_title(panel_title(panel), fontsize=8.5, pad=12)
    axes.set_ylabel(display_name(panel["measure"].iloc[0]))
    if panel["mean"].max() > high:
        axes.annotate(
            f"▲ above the picture, up to {panel['mean'].max():,.4g}", (1.0, 1.0), xycoords="axes fraction",
            xytext=(0, -3), textcoords="offset points", ha="right", va="top", fontsize=6.5, color=FAINT,
        )  # fmt: skip
    return handles


def _differences(axes: Axes, panel: pd.DataFrame, looks: dict[str, Style]) -> None:
    reference = panel["reference"].iloc[0]
    axes.axhline(0, color=looks[reference].color, linewidth=1.0, zorder=1)
    for label, curve in panel.groupby("encoding", sort=False):
        if curve["difference"].notna().any():
            _line(axes, looks[label], curve, "difference", "difference_low", "difference_high")
    axes.set_ylim(*_range(panel, differences=True))
    _length_axis(axes, panel)
    axes.set_ylabel(_versus(reference), fontsize=7)


def _line(axes: Axes, style: Style, curve: pd.DataFrame, value: str, low: str, high: str) -> Any:
    """A curve and its interval."""
    axes.fill_between(curve["length"], curve[low], curve[high], color=style.color, alpha=0.05, linewidth=0)
    for end in (low, high):
        axes.plot(curve["length"], curve[end], color=style.color, alpha=0.35, linewidth=0.5, zorder=1)
    there = curve[curve[value].notna()]
    many = len(there) >= 10 or value == "difference"
    return axes.plot(
        there["length"], there[value], color=style.color, linestyle=style.linestyle, marker=style.marker,
        linewidth=1.0 if value == "difference" else 1.4, markersize=2.6 if many else 4.4,
        markeredgecolor="white", markeredgewidth=0 if many else 0.4, zorder=3,
    )[0]  # fmt: skip


def _length_axis(axes: Axes, panel: pd.DataFrame) -> None:
    lengths, trained = sorted(panel["length"].unique()), panel["train_length"].unique()
    ticks = _ticks(lengths, trained)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [_short(tick) for tick in ticks])
    axes.minorticks_off()
    margin = (lengths[-1] / lengths[0]) ** 0.04 if len(lengths) > 1 else 1.1
    axes.set_xlim(lengths[0] / margin, lengths[-1] * margin)
    axes.set_xlabel(f"{panel['axis'].iloc[0]} (tokens)")
    axes.grid(axis="y", color=GRID, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    for length in trained:
        axes.axvline(length, color=FAINT, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=0)


def _range(panel: pd.DataFrame, differences: bool = False) -> tuple[float, float]:
    """Bottom and top of the drawn values; losses far above the best are cut off."""
    value = "difference" if differences else "mean"
    means = panel[value].dropna()
    ends = panel[["difference_low", "difference_high"] if differences else ["low", "high"]]
    room = math.inf
    if panel["lower_is_better"].iloc[0]:
        best = panel["mean"].min()
        room = HIGHEST if panel["measure"].iloc[0] == "loss_nats" else best * (HIGHEST - 1)
        room /= 3 if differences else 1
    elif not differences:
        return RATE
    start = 0.0 if differences else means.min()
    kept = [start, *means[means <= start + room]]
    kept += [end for end in ends.stack() if min(kept) - room <= end <= start + room]
    margin = max(0.05 * (max(kept) - min(kept)), 0.004 * abs(start), 1e-6)
    return min(kept) - margin, max(kept) + (2.5 if means.max() > start + room else 1) * margin


def _versus(reference: str) -> str:
    return f"Δ vs. {reference}" if len(reference) < 14 else "Δ"


def _about(summary: pd.DataFrame) -> str:
    intervals = [text.replace("interval", "CI") for text in summary["interval"].dropna().unique()]
    texts = [f"shaded: {'; '.join(intervals)}" if intervals else "no interval"]
    return "; ".join([*texts, *["points: seeds"] * bool((summary["seeds"] > 1).any())])


def _ticks(lengths: list[int], trained: Any) -> list[int]:
    """Lengths at the axis, far enough apart to be read: powers of two times the trained one come first."""
    anchor = next((length for length in lengths if length in trained), lengths[-1])
    apart = math.log2(lengths[-1] / lengths[0]) / TICKS
    ticks = [anchor]
    for length in sorted(lengths, key=lambda length: not math.log2(length / anchor).is_integer()):
        if length not in ticks and all(abs(math.log2(length / other)) >= apart for other in ticks):
            ticks.append(length)
    return sorted(ticks)


def _short(length: int) -> str:
    """1024 is 1k, and 1000 is 1000.

    >>> _short(16384), _short(1000)
    ('16k', '1000')
    """
    return f"{length // 1024}k" if length % 1024 == 0 else str(length)


def interactive_curves(panel: pd.DataFrame, labels: Iterable[str]) -> Interactive:
    """The rows of one panel as a figure of plotly: values by length, and the differences to the reference.

    Args:
        labels: all of the page, which decide the colours.
    """
    from plotly.subplots import make_subplots

    first, looks = panel.iloc[0], styles(labels)
    compared = isinstance(first["reference"], str)
    figure = make_subplots(
        rows=1 + compared, shared_xaxes=True, row_heights=[0.7, 0.3][: 1 + compared], vertical_spacing=0.04
    )
    for label, curve in panel.groupby("encoding", sort=False):
        _traces(figure, 1, curve, looks[label], "mean", "low", "high")
        if compared and curve["difference"].notna().any():
            _traces(figure, 2, curve, looks[label], "difference", "difference_low", "difference_high")
    lengths = sorted(panel["length"].unique().tolist())
    ticks = _ticks(lengths, panel["train_length"].unique())
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=list(map(_short, ticks)), gridcolor=GRID)
    figure.update_yaxes(gridcolor=GRID, zerolinecolor="#999999", automargin=True)
    figure.update_xaxes(title=f"{first['axis']} (tokens)", row=1 + compared, col=1)
    figure.update_yaxes(title=display_name(first["measure"]), range=_range(panel), row=1, col=1)
    if compared:
        title = escape(_versus(first["reference"]))
        figure.update_yaxes(title=title, range=_range(panel, differences=True), row=2, col=1)
    for length in sorted(set(panel["train_length"])):
        figure.add_vline(length, line={"color": FAINT, "dash": "dot"})
    figure.update_layout(
        height=440 + 150 * compared + 20 * panel["encoding"].nunique(), plot_bgcolor="white",
        hovermode="closest", margin={"l": 60, "r": 10, "t": 30, "b": 10}, font={"color": INK},
        legend={"orientation": "h", "yanchor": "top", "y": -0.16},
    )  # fmt: skip
    return figure


def _traces(
    figure: Interactive, row: int, curve: pd.DataFrame, style: Style, value: str, low: str, high: str
) -> None:
    """A curve and the band of its interval; the legend switches all traces of an encoding."""
    label = curve["encoding"].iloc[0]
    name = escape(label)
    text = signed if value == "difference" else number
    known = curve[curve[low].notna()]
    if len(known):
        band = [*known[high], *known[low][::-1]]
        figure.add_scatter(
            x=[*known["length"], *known["length"][::-1]], y=band, fill="toself", fillcolor=style.color,
            opacity=0.12, line={"width": 0}, mode="lines", hoverinfo="skip", legendgroup=label,
            showlegend=False, row=row, col=1,
        )  # fmt: skip
    there = curve[curve[value].notna()]
    hover = [
        f"{name} at {point['length']}: {text(point[value])}"
        + (f" [{text(point[low])} to {text(point[high])}]" if not math.isnan(point[low]) else "")
        + (f"<br>rank {point['rank']:.0f}" if not math.isnan(point["rank"]) else "")
        + "".join(f"<br>seed {seed}: {number(own)}" for seed, own in point["values"].items() if row == 1)
        for _, point in there.iterrows()
    ]
    figure.add_scatter(
        x=there["length"], y=there[value], name=name, text=hover, hoverinfo="text", mode="lines+markers",
        line=style.line, marker={"symbol": SYMBOLS[style.marker]}, legendgroup=label, showlegend=row == 1,
        row=row, col=1,
    )  # fmt: skip
