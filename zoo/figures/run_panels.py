"""Panels of what goes on inside a trained model: its attention over distance, and more by position."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.evaluation.activations import Activations, middles
from zoo.evaluation.interval import interval_of_mean
from zoo.figures.attention_maps import spread
from zoo.figures.panel import Data, Limits, Panel
from zoo.figures.style import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAYERS = 5
"""How many layers have a line, at most."""
SMALLEST = 1e-6
"""Attention below this is drawn at the bottom."""
DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
"""Of the longest length, and of shorter ones."""

LEGEND: dict[str, Any] = {
    "fontsize": 6.5, "handlelength": 2.2, "columnspacing": 1.2, "framealpha": 0.8, "edgecolor": "none",
    "borderpad": 0.2,
}  # fmt: skip

Line = tuple[np.ndarray, np.ndarray, np.ndarray]
"""A mean and its interval, low and high, [N] each."""


def mean_over_sequences(values: np.ndarray) -> Line:
    """Mean and 95 % interval over sequences, of values [W,...,N] that are first averaged over heads or what
    else is between; NaN is left out, and there is no interval of fewer than two sequences."""
    own = values if values.ndim == 2 else _nanmean(values, tuple(range(1, values.ndim - 1)))
    mean, ends = _nanmean(own, (0,)), []
    for column in own.T:
        low, high = interval_of_mean(column[np.isfinite(column)])
        # All that is drawn is at least zero.
        ends.append((math.nan if low is None else max(low, 0.0), math.nan if high is None else high))
    low, high = np.array(ends, dtype=float).reshape(-1, 2).T
    return mean, low, high


def by_distance(seen: Activations) -> Panel:
    """Mean attention over distance, of queries within the trained length and of those beyond it."""
    layers = spread(seen.attention.shape[1], LAYERS)
    data: dict[str, Any] = {"distance": middles(seen.bins), "layers": np.array(layers)}
    lines = []
    for side, name in enumerate(("within", "beyond")):
        for layer in layers:
            line = mean_over_sequences(seen.attention[:, layer, :, side])
            data |= dict(zip(names_of(f"layer_{layer}_{name}"), line, strict=True))
            if np.isfinite(line[0]).any():
                lines.append((layer, side, f"layer_{layer}_{name}"))
    beyond = seen.length > seen.trained

    def paint(axes: Axes, data: Data, limits: Limits | None) -> None:
        for layer, side, name in lines:
            line = [np.maximum(data[one], SMALLEST) for one in names_of(name)]
            draw_line(axes, data["distance"], line, layer, layers, (1 - side) * beyond)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
        _axis(axes, seen, "distance of the key (tokens)")
        axes.set_ylabel("mean attention weight")
        axes.set_ylim(bottom=axes.get_ylim()[0] / 30)  # room for the names of the lines
        draw_key(axes, layers, ["beyond trained", "within"] if beyond else [])

    told = (
        "Solid: queries beyond the trained length, dashed: within it. Where a solid line has another course "
        "than its dashed one, a layer looks elsewhere than it was trained to."
        if beyond
        else "No longer sequences than those of training were read."
    )
    return Panel("attention_by_distance", "Attention over distance", told, data, paint)


def by_position(observed: Mapping[int, Activations], loss_color: str) -> list[Panel]:
    """Entropy, its share of the most there can be, weight on the first token, norm and loss, by position.

    Args:
        observed: by length, in tokens.
        loss_color: of the line of the loss.
    """
    longest = observed[max(observed)]
    layers = spread(longest.entropy.shape[1], LAYERS)
    streams = spread(longest.norm.shape[1], LAYERS)
    panels = [
        _by_position(
            observed, "entropy", layers, lambda seen, layer: seen.entropy[:, layer],
            "Entropy of attention", "entropy (nats)",
            "Grey: log n, of attention that is the same for all n visible tokens. A line that follows it "
            "loses what it looks for among ever more tokens; one that stays level looks at equally many.",
        ),
        _by_position(
            observed, "entropy_share", layers, lambda seen, layer: seen.share[:, layer],
            "Entropy as a share of log n", "entropy / log n",
            "1 is attention without any choice, 0 attention to one token.",
        ),
        _by_position(
            observed, "first_token", layers, lambda seen, layer: seen.first[:, layer],
            "Attention to the first token", "weight on the first token",
            "Heads that need nothing park their attention there (a sink). A share that changes beyond the "
            "trained length is attention that goes elsewhere.",
        ),
        _by_position(
            observed, "norm", streams, lambda seen, layer: seen.norm[:, layer],
            "Norm of the residual stream", "norm (Euclidean)",
            "Before the first layer and after each. A norm that leaves its level beyond the trained "
            "length is an input that later layers were never given.", kind="after layer",
        ),
    ]  # fmt: skip
    if any(np.isfinite(seen.loss).any() for seen in observed.values()):
        panels.append(_losses(observed, loss_color))
    return panels


def _by_position(
    observed: Mapping[int, Activations],
    key: str,
    layers: Sequence[int],
    values: Callable[[Activations, int], np.ndarray],
    title: str,
    unit: str,
    caption: str,
    kind: str = "layer",
) -> Panel:
    lengths = sorted(observed, reverse=True)
    data: dict[str, Any] = {"layers": np.array(layers)}
    lines = []
    for number, length in enumerate(lengths):
        seen = observed[length]
        data[f"position_{length}"] = middles(seen.bins)
        for layer in layers:
            line = mean_over_sequences(values(seen, layer))
            data |= dict(zip(names_of(f"layer_{layer}_length_{length}"), line, strict=True))
            lines.append((f"position_{length}", f"layer_{layer}_length_{length}", layer, number))
    longest = observed[lengths[0]]
    if key == "entropy":
        data["most"] = longest.most
    # The shorter ones of a decoder are the beginnings of the longest, and lie under it.
    apart = _differ(data, lengths, [f"layer_{layer}_" for layer in layers])

    def paint(axes: Axes, data: Data, limits: Limits | None) -> None:
        if "most" in data:
            axes.plot(data[f"position_{longest.length}"], data["most"], color=FAINT, linewidth=1, zorder=1)
        for position, name, layer, number in lines:
            if number == 0 or apart:
                draw_line(axes, data[position], [data[one] for one in names_of(name)], layer, layers, number)
        _axis(axes, longest, "position of the token in its sequence")
        axes.set_ylabel(unit)
        # Room for the names of the lines.
        axes.set_ylim(0, 1.4 * axes.get_ylim()[1])
        if key in ("entropy_share", "first_token"):
            axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        draw_key(axes, layers, [f"in {length} tokens" for length in lengths] if apart else [], kind)

    return Panel(key, title, caption, data, paint)


def _differ(data: Mapping[str, Any], lengths: Sequence[int], lines: Sequence[str]) -> bool:
    """Whether a token in a shorter sequence has other values than at the same place in the longest."""
    for line in lines:
        whole = data[f"{line}length_{lengths[0]}"]
        for length in lengths[1:]:
            part = data[f"{line}length_{length}"]
            # The last bin of the shorter one may be cut off.
            same = len(part) - 1
            if not np.allclose(part[:same], whole[:same], rtol=1e-3, atol=1e-5, equal_nan=True):
                return True
    return False


def _losses(observed: Mapping[int, Activations], color: str) -> Panel:
    lengths = sorted(observed, reverse=True)
    data: dict[str, Any] = {}
    for length in lengths:
        data[f"position_{length}"] = middles(observed[length].loss_bins)
        line = mean_over_sequences(observed[length].loss)
        data |= dict(zip(names_of(f"length_{length}"), line, strict=True))
    longest = observed[lengths[0]]
    drawn = lengths if _differ(data, lengths, [""]) else lengths[:1]
    mean, low, high = (data[name] for name in names_of(f"length_{lengths[0]}"))
    known = np.isfinite(mean)
    noise = float(np.nanmedian(high - low)) if np.isfinite(high[known]).any() else math.inf
    flat = known.any() and float(np.ptp(mean[known])) < noise

    def paint(axes: Axes, data: Data, limits: Limits | None) -> None:
        for number, length in enumerate(drawn):
            position, line = (
                data[f"position_{length}"],
                [data[name] for name in names_of(f"length_{length}")],
            )
            points = np.isfinite(line[0])
            if number == 0:
                axes.fill_between(position, line[1], line[2], color=color, alpha=0.15, linewidth=0)
            axes.plot(
                position[points], line[0][points], color=color, linewidth=1.4 if number == 0 else 0.9,
                marker="o", markersize=2.5, linestyle=DASHES[number % len(DASHES)],
                label=f"in {length} tokens",
            )  # fmt: skip
        _axis(axes, longest, "position of the token in its sequence")
        axes.set_ylabel("loss (nats)")
        if flat:
            axes.text(
                0.98, 0.04, "it changes by less than its interval is wide", transform=axes.transAxes,
                ha="right", fontsize=6.5, color=INK,
            )  # fmt: skip
        if len(drawn) > 1:
            axes.legend(**LEGEND)

    return Panel(
        "loss", "Loss by position",
        "Mean and 95 % interval over sequences. Where it rises beyond the trained length the model breaks; "
        "the other panels say what changes there.",
        data, paint,
    )  # fmt: skip


def names_of(of: str) -> list[str]:
    return [of, f"{of}_low", f"{of}_high"]


def _nanmean(values: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    """Without the warning of numpy where all are NaN."""
    known = ~np.isnan(values)
    count = known.sum(axis)
    total = np.where(known, values, 0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _color(layer: int, layers: Sequence[int]) -> Any:
    import matplotlib

    place = list(layers).index(layer) / max(1, len(layers) - 1)
    return matplotlib.colormaps["viridis"](0.18 + 0.67 * place)


def draw_line(
    axes: Axes, x: np.ndarray, line: Sequence[np.ndarray], layer: int, layers: Sequence[int], dash: int
) -> None:
    color, known = _color(layer, layers), np.isfinite(line[0])
    if dash == 0:
        axes.fill_between(x, line[1], line[2], color=color, alpha=0.15, linewidth=0)
    axes.plot(
        x[known], line[0][known], color=color, linestyle=DASHES[dash % len(DASHES)],
        linewidth=1.3 if dash == 0 else 0.9,
    )  # fmt: skip


def _axis(axes: Axes, seen: Activations, label: str) -> None:
    """Positions or distances on a logarithmic axis that has 0, the trained length marked."""
    axes.set_xscale("symlog", base=2, linthresh=1, linscale=0.5)
    axes.set_xlim(0, seen.length)
    ticks = [0, *(2**power for power in range(0, int(math.log2(max(2, seen.length))) + 1, 2)), seen.trained]
    ticks = sorted({tick for tick in ticks if tick == seen.trained or not 0.3 < tick / seen.trained < 3})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(label)
    axes.set_label("over x")  # what a moving picture uncovers
    if seen.length > seen.trained:
        axes.axvspan(seen.trained, seen.length, color=FAINT, alpha=0.12, linewidth=0, zorder=0)
    axes.axvline(seen.trained, color=FAINT, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=0)


def _called(layer: int, kind: str) -> str:
    """Layers are counted from 1; before them the residual stream is the input."""
    if kind == "after layer":
        return f"{kind} {layer}" if layer else "input"
    return f"{kind} {layer + 1}"


def draw_key(axes: Axes, layers: Sequence[int], dashes: Sequence[str], kind: str = "layer") -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=_color(layer, layers), label=_called(layer, kind)) for layer in layers]
    handles += [
        Line2D([], [], color=INK, linestyle=DASHES[number % len(DASHES)], label=text)
        for number, text in enumerate(dashes)
    ]
    axes.legend(handles=handles, ncols=2, **LEGEND)
