"""The panels of a report as a picture: values by length, and under them the differences to the reference."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zoo.figures.style import FAINT, INK, METADATA, RC, Style, styles
from zoo.reports.cutoff import RATE, room_for_failures
from zoo.reports.formatting import display_name, protocol_text
from zoo.reports.report import Panel
from zoo.reports.tables import spread_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TICKS = 8
MANY = 10
"""From so many points on a line, they are small."""
WIDTH = 7.0
LABEL = 0.17
"""Height of a label of the legend, in inches."""


def plot(panels: Sequence[Panel], title: str | None = None) -> dict[str, bytes]:
    """A picture of the panels as PNG and as SVG, by the ending of its file; none where nothing was measured.

    In each panel there are a line for each curve, the interval as two faint edges with little between
    them, a point for each seed, and the trained length marked.

    Under a panel with more than one curve stand the differences to its reference, with their own paired
    intervals. What has failed leaves the picture at its top, where the value is written.
    """
    drawn = [panel for panel in panels if any(curve.points for curve in panel.curves)]
    if not drawn:
        return {}
    import matplotlib

    pictures = {}
    with matplotlib.rc_context(RC):
        figure = draw(drawn, title)
        for ending, metadata in METADATA.items():
            content = io.BytesIO()
            figure.savefig(content, format=ending[1:], dpi=200, metadata=metadata)
            pictures[ending] = content.getvalue()
            figure.set_layout_engine("none")  # found once, for both
    return pictures


def draw(panels: Sequence[Panel], title: str | None = None) -> Figure:
    """The figure of some panels; see `plot`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    looks = styles(labels)
    columns = 1 if len(panels) == 1 else 2
    rows = math.ceil(len(panels) / columns)
    beside = columns == 1 and len(labels) > 1
    per_line = max(1, min(len(labels), 4 if max(map(len, labels)) < 22 else 2))
    height = rows * ((3.9 if columns == 1 else 2.75) + 1.15 * any(panel.pairs for panel in panels))
    if beside:
        height = max(height, LABEL * len(labels) + 0.2)
    elif len(labels) > 1:
        height += LABEL * (math.ceil(len(labels) / per_line) + 1) + 0.08
    figure = Figure(figsize=(WIDTH, height + (0.3 if title else 0)), layout="constrained")
    FigureCanvasAgg(figure)
    outer = figure.add_gridspec(rows, columns)
    handles: dict[str, Any] = {}
    for index, panel in enumerate(panels):
        cell = outer[index // columns, index % columns]
        if panel.pairs:
            upper, lower = cell.subgridspec(2, 1, height_ratios=(2.6, 1.0), hspace=0.04)
            axes = figure.add_subplot(upper)
            handles |= _values(axes, panel, looks)
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)
            _differences(figure.add_subplot(lower, sharex=axes), panel, looks)
        else:
            handles |= _values(figure.add_subplot(cell), panel, looks)
    about = _about(panels)
    shown = [label for label in labels if label in handles]
    if beside:  # in the order in which the lines end
        ends = {curve.label: [mean for mean in curve.mean if mean is not None] for curve in panels[0].curves}
        shown.sort(key=lambda label: (-ends[label][-1], label))
    if len(shown) > 1:
        figure.legend(
            [handles[label] for label in shown], [_with_end(panels, label) for label in shown],
            frameon=False, handlelength=2.6, title=None if beside else about or None, title_fontsize=6.5,
            ncols=1 if beside else per_line,
            loc="outside right center" if beside else "outside lower center",
        )  # fmt: skip
    if len(labels) == 1:
        title = f"{title}: {labels[0]}" if title else labels[0]
    if title:
        figure.suptitle(title, fontsize=9.5)
    if about and (beside or len(shown) < 2):
        figure.supxlabel(about, fontsize=6.5, color=INK)
    return figure


def _values(axes: Axes, panel: Panel, looks: Mapping[str, Style]) -> dict[str, Any]:
    """The values of a panel; gives the line of each curve."""
    means = [mean for curve in panel.curves for mean in curve.mean if mean is not None]
    points = [point.value for curve in panel.curves for point in curve.points]
    ends = [end for curve in panel.curves for end in (*curve.low, *curve.high)]
    low, high = RATE
    if panel.lower_is_better:
        low, high = _range(means + points, ends, min(means, default=0.0), room_for_failures(panel))
    axes.set_ylim(low, high)
    handles = {}
    for curve in panel.curves:
        if curve.seeds > 1:
            axes.plot(
                [point.length for point in curve.points], [point.value for point in curve.points], "o",
                color=looks[curve.label].color, alpha=0.45, markersize=2.6, zorder=2, markeredgewidth=0,
            )  # fmt: skip
        line = _line(axes, looks[curve.label], panel.lengths, curve.mean, curve.low, curve.high)
        if line is not None:
            handles[curve.label] = line
    _length_axis(axes, panel)
    axes.set_title(protocol_text(panel.protocol, panel.parameters), fontsize=8.5, pad=12)
    axes.set_ylabel(display_name(panel.measure))
    _mark_failures(axes, panel, looks, high)
    return handles


def _differences(axes: Axes, panel: Panel, looks: Mapping[str, Style]) -> None:
    """The differences of a panel's curves to its reference, on the scale of those that did not fail."""
    axes.axhline(0, color=looks[panel.reference].color, linewidth=1.0, zorder=1)
    means, ends = [0.0], []
    for curve in panel.curves:
        if curve.label == panel.reference:
            continue
        found = {length: panel.between(length, curve.label, panel.reference) for length in panel.lengths}
        values, low, high = (
            [getattr(one, name, None) for one in found.values()] for name in ("value", "low", "high")
        )
        _line(axes, looks[curve.label], panel.lengths, values, low, high, small=True)
        means += [value for value in values if value is not None]
        ends += low + high
    axes.set_ylim(*_range(means, ends, 0.0, room_for_failures(panel, differences=True)))
    _length_axis(axes, panel, named=False)
    axes.set_ylabel(f"less {panel.reference}" if len(panel.reference) < 14 else "difference", fontsize=7)


def _line(
    axes: Axes,
    style: Style,
    lengths: Sequence[int],
    mean: Sequence[float | None],
    low: Sequence[float | None],
    high: Sequence[float | None],
    small: bool = False,
) -> Any:
    """A curve and its interval; None where there is no value."""
    points = [(n, value) for n, value in zip(lengths, mean, strict=True) if value is not None]
    if not points:
        return None
    # Where a length between two has no interval, none is drawn across it.
    ends = [[math.nan if value is None else value for value in own] for own in (low, high)]
    if not all(map(math.isnan, ends[0])):
        axes.fill_between(lengths, *ends, color=style.color, alpha=0.05, linewidth=0, zorder=1)
        for end in ends:
            axes.plot(lengths, end, color=style.color, alpha=0.35, linewidth=0.5, zorder=1)
    many = small or len(points) >= MANY
    # A single point is no line that leads the eye to it: it stands around what lies under it.
    single = len(points) == 1
    return axes.plot(
        *zip(*points, strict=True),
        color=style.color,
        linestyle=style.linestyle,
        linewidth=1.0 if small else 1.4,
        marker=style.marker,
        markersize=7.5 if single and not small else 2.6 if many else 4.4,
        markerfacecolor="none" if single else style.color,
        markeredgecolor=style.color if single or many else "white",
        markeredgewidth=1.2 if single else 0 if many else 0.4,
        zorder=4 if single else 3,
    )[0]


def _length_axis(axes: Axes, panel: Panel, named: bool = True) -> None:
    axes.set_xscale("log", base=2)
    measured = sorted({point.length for curve in panel.curves for point in curve.points})
    ticks = _ticks(measured, panel.train_lengths)
    axes.set_xticks(ticks, [_short(tick) for tick in ticks])
    axes.minorticks_off()
    span = math.log2(measured[-1] / measured[0]) or 1.0
    axes.set_xlim(measured[0] / 2 ** (0.04 * span), measured[-1] * 2 ** (0.04 * span))
    axes.set_xlabel(f"{panel.axis} (tokens)")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    for length in panel.train_lengths:
        axes.axvline(length, color=FAINT, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=0)
        if named:
            said = "trained" if len(panel.train_lengths) == 1 else f"trained {_short(length)}"
            axes.annotate(
                said, (length, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 1.5),
                textcoords="offset points", ha="center", fontsize=6.5, color=FAINT, annotation_clip=True,
            )  # fmt: skip


def _mark_failures(axes: Axes, panel: Panel, looks: Mapping[str, Style], top: float) -> None:
    """An arrow at the top for what lies above it or is not finite, and a word on how high it goes."""
    if not panel.lower_is_better:
        return
    highest, finite = 0.0, True
    for curve in panel.curves:
        for index, (length, mean) in enumerate(zip(panel.lengths, curve.mean, strict=True)):
            if not curve.failed(index) and (mean is None or mean <= top):
                continue
            finite, highest = finite and mean is not None, max(highest, mean or 0.0)
            axes.plot(
                [length], [top], "^", color=looks[curve.label].color, markersize=4.5, clip_on=False, zorder=4,
                markeredgewidth=0,
            )  # fmt: skip
    if highest or not finite:
        said = " or ".join([f"up to {highest:,.4g}"] * bool(highest) + ["not finite"] * (not finite))
        axes.annotate(
            f"▲ above the picture, {said}", (1.0, 1.0), xycoords="axes fraction", xytext=(0, -3),
            textcoords="offset points", ha="right", va="top", fontsize=6.5, color=FAINT, zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
        )  # fmt: skip


def _about(panels: Sequence[Panel]) -> str:
    """What the faint edges are, and the points; or why there are none."""
    texts = dict.fromkeys(map(spread_text, panels))
    said = [text.replace("(low–high):", "edges:") for text in texts]
    if any(curve.seeds > 1 for panel in panels for curve in panel.curves):
        said.append("points: seeds")
    # In one line a long reason would be cut off.
    return "\n".join(textwrap.wrap("; ".join(said), 110))


def _range(
    means: list[float], ends: list[float | None], best: float, room: float | None
) -> tuple[float, float]:
    """Bottom and top of what is drawn: what lies more than `room` above the best is cut off."""
    room = math.inf if room is None else room
    kept = [value for value in means if value <= best + room] or [best]
    # Of a few documents an interval may be wider than the picture is worth.
    lowest = min(kept) - room
    kept += [end for end in ends if end is not None and lowest <= end <= best + room]
    margin = max(0.05 * (max(kept) - min(kept)), 0.004 * abs(best), 1e-6)
    return min(kept) - margin, max(kept) + (2.5 if max(means, default=best) > best + room else 1) * margin


def _with_end(panels: Sequence[Panel], label: str) -> str:
    """The name of a curve, and where it ends if something forbids longer sequences."""
    for curve in (curve for panel in panels for curve in panel.curves if curve.label == label):
        known = [index for index, mean in enumerate(curve.mean) if mean is not None]
        beyond = range(known[-1] + 1, len(curve.lengths)) if known else ()
        if beyond and all(curve.is_noted(index) for index in beyond):
            return f"{label} (up to {_short(curve.lengths[known[-1]])})"
    return label


def _ticks(lengths: Sequence[int], trained: Sequence[int]) -> list[int]:
    """Lengths to be written at the axis, far enough apart to be read: the trained one, it doubled and halved,
    and others where these are few."""
    anchor = next((length for length in lengths if length in trained), lengths[-1])
    apart = math.log2(lengths[-1] / lengths[0]) / MOST_TICKS
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
