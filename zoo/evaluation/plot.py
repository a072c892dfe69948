"""Length-generalization curves."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.evaluation.curves import Curve, Panel, panels
from zoo.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT_OF_FAILURE = 1.5
"""A loss this far above the best one (nats) is cut off by the plot; how a failed curve fails is no news."""
TIMES_THE_BEST = 1.5
"""The same for bits per byte and perplexities, as a factor."""

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333")
"""Okabe and Ito 2008, without the yellow that white paper swallows: told apart without red and green."""
MARKERS = "osD^vPX<"
DASHES = ("-", (0, (5, 1.6)), (0, (1.4, 1.4)), (0, (5, 1.4, 1.2, 1.4)))

MOST_TICKS = 8
MANY = 10
"""From so many points on a line, they are small."""

WIDTH = 7.0
LABEL = 0.17
"""Height of a label of the legend, in inches."""
INK, FAINT = "#333333", "#8a8a8a"
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.7,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # A dollar in the name of an encoding is a dollar.
    "text.parse_math": False,
    # The same rows are the same bytes, and a text can be searched and read aloud.
    "svg.fonttype": "none",
    "svg.hashsalt": "positional-encoding-zoo",
    "path.simplify": False,
}
METADATA = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}
NAMES = {"bits_per_byte": "bits per byte", "loss_nats": "loss (nats per token)", "accuracy": "accuracy"}


def plot_lengths(rows: Sequence[dict[str, Any]], *files: Path, title: str | None = None) -> None:
    """Draw rows, as in lengths.json: `draw` of the panels that they come to."""
    draw(panels(rows), *files, title=title)


def draw(panels: Iterable[Panel], *files: Path, title: str | None = None) -> None:
    """Draw accuracy or loss against length: a plot for each panel.

    A line joins what one encoding gave on the same targets, its mean where there are several seeds, which are
    then points of their own. The shade is the 95 % interval, of one kind in the whole picture, which is named
    below it; where there is none, the reason is. The trained length is marked. What has failed leaves the
    picture at its top, where it is said. Nothing is drawn where nothing was measured.

    Args:
        panels: a line is drawn for each of their curves, as they are.
        files: where to; their endings say what, as `.png` and `.svg`.
    """
    drawn = [panel for panel in panels if any(row.get(panel.measure) is not None for row in panel.rows)]
    if not drawn or not files:
        return
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure = _figure(drawn, title)
        for file in files:
            content = io.BytesIO()
            ending = file.suffix.lower()
            figure.savefig(content, format=ending[1:], dpi=200, metadata=METADATA.get(ending))
            atomic_write(file, content.getvalue())


def _figure(drawn: Sequence[Panel], title: str | None) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    labels = sorted({curve.label for panel in drawn for curve in panel.curves})
    columns = 1 if len(drawn) == 1 else 2
    lines = math.ceil(len(drawn) / columns)
    beside = columns == 1 and len(labels) > 1
    legend_columns = max(1, min(len(labels), 4 if max(map(len, labels)) < 22 else 2))
    under = 0 if beside or len(labels) == 1 else LABEL * math.ceil(len(labels) / legend_columns) + 0.08
    least = LABEL * len(labels) + 0.2 if beside else 0
    under += 0 if beside else LABEL
    height = max(3.9 if columns == 1 else 2.75 * lines, least) + under + (0.3 if title else 0)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(lines, columns, squeeze=False).flatten()
    for axes in grid[len(drawn) :]:
        axes.remove()
    handles: dict[str, Any] = {}
    for axes, panel in zip(grid, drawn, strict=False):
        handles |= _draw(axes, panel, labels)
    ordered = _by_last_value(drawn[0], labels) if beside else labels
    shown = [label for label in ordered if label in handles]
    # In one line a long reason would be cut off.
    about = "\n".join(textwrap.wrap(_about_intervals(drawn), 110))
    if len(shown) > 1:
        place = {"loc": "outside right center"} if beside else {"loc": "outside lower center"}
        figure.legend(
            [handles[label] for label in shown], [_with_end(drawn, label) for label in shown],
            frameon=False, handlelength=2.6, title=None if beside else about or None, title_fontsize=6.5,
            ncols=1 if beside else legend_columns, **place,
        )  # fmt: skip
    if len(labels) == 1:
        title = f"{title}: {labels[0]}" if title else labels[0]
    if title:
        figure.suptitle(title, fontsize=9.5)
    if about and (beside or len(shown) < 2):
        figure.supxlabel(about, fontsize=6.5, color=INK)
    return figure


def _draw(axes: Axes, panel: Panel, labels: Sequence[str]) -> dict[str, Any]:
    """One panel; gives the line of each curve."""
    measure = panel.measure
    handles = {}
    for curve in panel.curves:
        place = labels.index(curve.label)
        color = COLORS[place % len(COLORS)]
        points = [(n, value) for n in panel.lengths if (value := curve.mean(n, measure)) is not None]
        if not points:
            continue
        size, edge, edge_width = (4.4, "white", 0.4) if len(points) < MANY else (3.0, color, 0)
        # A single point is no line that leads the eye to it: it stands around what lies under it.
        single = len(points) == 1
        handles[curve.label] = axes.plot(
            *zip(*points, strict=True),
            color=color,
            linestyle=DASHES[place // len(COLORS) % len(DASHES)],
            linewidth=1.4,
            marker=MARKERS[place % len(MARKERS)],
            markersize=7.5 if single else size,
            markerfacecolor="none" if single else color,
            markeredgecolor=color if single else edge,
            markeredgewidth=1.2 if single else edge_width,
            zorder=4 if single else 3,
        )[0]
        _spread(axes, panel, curve, color, 0.13 if len(panel.curves) < 7 else 0.07)
    _scale(axes, panel)
    _mark_failures(axes, panel, handles)
    return handles


def _spread(axes: Axes, panel: Panel, curve: Curve, color: str, alpha: float) -> None:
    """The interval, and every seed as a point where there are several."""
    if curve.seeds > 1:
        measure = panel.measure
        points = [(row["length"], row[measure]) for row in curve.rows if row.get(measure) is not None]
        axes.plot(
            *zip(*points, strict=True), "o", color=color, alpha=0.45, markersize=2.6, zorder=2,
            markeredgewidth=0,
        )  # fmt: skip
    # Where a length between two has no interval, none is drawn across it.
    ends = [curve.ends.get(length, (math.nan, math.nan)) for length in panel.lengths]
    if curve.ends:
        axes.fill_between(
            panel.lengths, *zip(*ends, strict=True), color=color, alpha=alpha, linewidth=0, zorder=1
        )


def _about_intervals(drawn: Sequence[Panel]) -> str:
    """What the shades are, and the points; or why there are no shades."""
    named = list(dict.fromkeys(panel.interval for panel in drawn if panel.interval))
    said = [f"shade: {one}" if any(curve.ends for curve in _of(drawn, one)) else one for one in named]
    if any(curve.seeds > 1 for panel in drawn for curve in panel.curves):
        said.append("points: seeds")
    return "; ".join(said)


def _of(drawn: Sequence[Panel], interval: str) -> list[Curve]:
    return [curve for panel in drawn if panel.interval == interval for curve in panel.curves]


def _scale(axes: Axes, panel: Panel) -> None:
    measure, rows = panel.measure, panel.rows
    axes.set_xscale("log", base=2)
    trained = {row["train_length"] for row in rows}
    measured = [row["length"] for row in rows if row.get(measure) is not None]
    ticks = _ticks(sorted(set(measured)), trained)
    axes.set_xticks(ticks, [_short(tick) for tick in ticks])
    axes.minorticks_off()
    span = math.log2(max(measured) / min(measured)) or 1.0
    axes.set_xlim(min(measured) / 2 ** (0.04 * span), max(measured) * 2 ** (0.04 * span))
    for length in trained:
        axes.axvline(length, color=FAINT, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=0)
        said = "trained" if len(trained) == 1 else f"trained {_short(length)}"
        axes.annotate(
            said, (length, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 1.5),
            textcoords="offset points", ha="center", fontsize=6.5, color=FAINT, annotation_clip=True,
        )  # fmt: skip
    axes.set_title(panel.title, fontsize=8.5, pad=12)
    axes.set_xlabel("context (tokens)" if panel.protocol == "per_position" else "length (tokens)")
    axes.set_ylabel(NAMES.get(measure, measure.replace("_", " ")))
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    axes.set_ylim(*_range(panel))


def _range(panel: Panel) -> tuple[float, float]:
    """Bottom and top of a panel."""
    measure = panel.measure
    if measure == "accuracy":
        return -0.03, 1.03
    values = [row[measure] for row in panel.rows if row.get(measure) is not None]
    ends = [end for curve in panel.curves for end in curve.ends.values()]
    means = [m for c in panel.curves for n in panel.lengths if (m := c.mean(n, measure)) is not None]
    best, worst = min(values), max(values)
    limit = best + HEIGHT_OF_FAILURE if measure == "loss_nats" else best * TIMES_THE_BEST
    cut = worst > limit
    # Of a picture that is cut, only as much as what stays in it needs.
    # Of a few documents an interval may be wider than the picture is worth.
    bottom = max(min([best, *(low for low, _ in ends)]), 2 * best - limit)
    top = max((value for value in means if value <= limit), default=best) if cut else worst
    top = max([top, *(high for _, high in ends if high <= limit)])
    room = max(0.05 * (top - bottom), 0.004 * abs(best), 1e-6)
    return bottom - room, top + (2.5 if cut else 1) * room


def _mark_failures(axes: Axes, panel: Panel, handles: dict[str, Any]) -> None:
    """An arrow at the top for what lies above it or is not finite, and a word on how high it goes."""
    measure = panel.measure
    top = _range(panel)[1]
    highest, finite = 0.0, True
    for curve in panel.curves:
        for length in panel.lengths:
            mean = curve.mean(length, measure)
            if mean is None and any("note" not in row for row in curve.at(length)):
                mean = math.inf
            if mean is None or mean <= top or measure == "accuracy":
                continue
            finite, highest = finite and math.isfinite(mean), max(highest, mean if math.isfinite(mean) else 0)
            line = handles.get(curve.label)
            axes.plot(
                [length], [top], "^", color=line.get_color() if line else FAINT, markersize=4.5,
                clip_on=False, zorder=4, markeredgewidth=0,
            )  # fmt: skip
    if highest or not finite:
        said = " or ".join([f"up to {highest:,.4g}"] * bool(highest) + ["not finite"] * (not finite))
        axes.annotate(
            f"▲ above the picture, {said}", (1.0, 1.0), xycoords="axes fraction", xytext=(0, -3),
            textcoords="offset points", ha="right", va="top", fontsize=6.5, color=FAINT, zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
        )  # fmt: skip


def _by_last_value(panel: Panel, labels: Sequence[str]) -> list[str]:
    """Labels from top to bottom as their lines end, so that legend and lines stand in one order."""
    last = {}
    for curve in panel.curves:
        values = [curve.mean(length, panel.measure) for length in panel.lengths]
        known = [(place, value) for place, value in enumerate(values) if value is not None]
        last[curve.label] = known[-1][1] if known else -math.inf
    return sorted(labels, key=lambda label: (-last.get(label, -math.inf), label))


def _with_end(drawn: Sequence[Panel], label: str) -> str:
    """The name of a curve, and where it ends if something forbids longer sequences."""
    for panel in drawn:
        for curve in panel.curves:
            known = [row["length"] for row in curve.rows if row.get(panel.measure) is not None]
            beyond = [row for row in curve.rows if known and row["length"] > max(known)]
            if curve.label == label and beyond and all("note" in row for row in beyond):
                return f"{label} (up to {_short(max(known))})"
    return label


def _ticks(lengths: Sequence[int], trained: set[int]) -> list[int]:
    """Lengths to be written at the axis, far enough apart to be read: the trained one, doubled and halved."""
    anchor = next((length for length in lengths if length in trained), lengths[-1])
    for step in range(1, 16):
        octaves = [(n, math.log2(n / anchor) / step) for n in lengths]
        ticks = [n for n, octave in octaves if octave == round(octave)]
        if len(ticks) <= MOST_TICKS:
            break
    if len(ticks) >= min(3, len(lengths)):
        return ticks
    apart = math.log2(lengths[-1] / lengths[0]) / MOST_TICKS
    ticks = [anchor]
    for length in lengths:
        if all(abs(math.log2(length / other)) >= apart for other in ticks):
            ticks.append(length)
    return sorted(ticks)


def _short(length: int) -> str:
    """1024 is 1k, and 1000 is 1000.

    >>> _short(16384), _short(1000)
    ('16k', '1000')
    """
    return f"{length // 1024}k" if length % 1024 == 0 else str(length)
