"""The figure of encodings: each hook that an encoding overrides has its panels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit

from zoo import registry
from zoo.encodings.base import Encoding, Size
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError, Problem
from zoo.figures import plots
from zoo.figures.grid import Columns, Panel, PanelFigure, grid
from zoo.figures.hooks import CONTENTS, COPIES, Layer, draw_small_weights
from zoo.figures.plots import Reach
from zoo.figures.style import FAINT, INK, styles
from zoo.recipe.encoding import check_encoding, encoding_label
from zoo.recipe.tree import dotted

TRAINED, LENGTH, HEADS, D_MODEL = 64, 256, 4, 128
PAIRS = 4 * 1024**2
"""Of tokens, times heads: the largest figure."""
LAYERS = 2
"""Or as many as the pattern of an `interleave` has."""
DEPTH = 10.0
"""Nats below the highest bias that are drawn: attention there is below e^-10 of the largest."""
FLOOR = 1e-3
"""Attention, as a multiple of an equal share, that is drawn as zero."""
FIXED = ("positions", "angles")
"""Panels of values that no weight decides."""
RANDOM = " Weights that start near zero are drawn at random here: training sets them."


def figure(
    specs: Any, *, length: int = LENGTH, trained: int = TRAINED, heads: int = HEADS, d_model: int = D_MODEL
) -> PanelFigure:
    """The figure of one encoding, or of several side by side on shared scales.

    Args:
        specs: a name, a mapping of a name and options, a list of encodings that are combined; or a tuple of
            such, one for each column.
        length: the last position, in tokens.
        trained: the trained length, in tokens, which is marked.

    Raises:
        InputError: an unknown encoding or option, or numbers that do not fit together.
    """
    found = columns(specs, length=length, trained=trained, heads=heads, d_model=d_model)
    return grid(found, title(trained, length))


def columns(
    specs: Any, *, length: int = LENGTH, trained: int = TRAINED, heads: int = HEADS, d_model: int = D_MODEL
) -> Columns:
    """The panels of each encoding, by its label; arguments as of `figure`."""
    check_sizes(length, trained, heads, d_model)
    made = [resolved(spec) for spec in (specs if isinstance(specs, tuple) else (specs,))]
    looks, found = styles(labels_of(made)), {}
    for (label, look), spec in zip(looks.items(), made, strict=True):
        stack, drawn = build(spec, trained=trained, heads=heads, d_model=d_model)
        note = RANDOM if drawn else ""
        found[label] = panels_of(stack, length=length, trained=trained, color=look.color, note=note)
    return found


def title(trained: int, length: int) -> str:
    return f"trained length {trained}, drawn to {length} tokens"


def check_sizes(length: int, trained: int, heads: int, d_model: int) -> None:
    """Raise InputError where the numbers do not fit together, or are too large for a figure."""
    most = int((PAIRS / heads) ** 0.5)
    wrong = {
        "--trained": f"{trained} is beyond --length {length}" if trained > length else "",
        "--d-model": f"{d_model} is not a multiple of twice --heads {heads}" if d_model % (2 * heads) else "",
        "--length": f"{length} tokens of {heads} heads; the most is {most}" if length > most else "",
    }
    if any(wrong.values()):
        raise InputError([Problem(text, where=name) for name, text in wrong.items() if text])


def resolved(spec: Any) -> Any:
    """An encoding with every option. Raises InputError for an unknown name or option."""
    made, faults = check_encoding(spec, ("encoding",))
    if faults:
        raise InputError([Problem(fault, key=dotted(path)) for path, fault in faults.items()])
    return made


def labels_of(specs: Sequence[Any]) -> list[str]:
    """A label for each resolved encoding, with the options that are not at their default."""
    labels: list[str] = []
    for spec in specs:
        words = [encoding_label(spec)]
        if isinstance(spec, dict):
            for option in registry.encodings.describe(spec["name"]).options:
                value = spec[option.name]
                if value != option.default and not isinstance(value, dict | list | tuple):
                    words.append(
                        f"{option.name}={value:g}" if isinstance(value, float) else f"{option.name}={value}"
                    )
        labels.append(" ".join(words))
    return [f"{label} ({n})" if labels.count(label) > 1 else label for n, label in enumerate(labels, 1)]


def build(
    spec: Any, *, trained: int = TRAINED, heads: int = HEADS, d_model: int = D_MODEL
) -> tuple[EncodingStack, bool]:
    """The encodings of a small decoder (an encoder where they need one) in evaluation mode, and whether
    weights that start near zero were drawn at random."""
    size = Size(d_model, heads, max(LAYERS, _longest(spec)), trained, causal=True, layer=0)
    try:
        stack = EncodingStack(spec, size)
    except InputError as error:
        if "is not for a decoder" not in str(error):
            raise
        stack = EncodingStack(spec, replace(size, causal=False))
    return stack.eval(), draw_small_weights(stack)


@torch.no_grad()
def panels_of(
    stack: EncodingStack, *, length: int = LENGTH, trained: int = TRAINED, color: str = INK, note: str = ""
) -> list[Panel]:
    """The panels of the encodings of a model, by the hooks that they override.

    Args:
        stack: in evaluation mode.
        length: the last position, in tokens; an encoding with an end is drawn to its end.
        note: added to the captions of panels that depend on weights.
    """
    end = stack.max_length
    reach = Reach(trained, length, length if end is None else min(end, length))
    layers = _layers(stack)
    found = []
    for number, (name, encodings) in enumerate(layers.items()):
        learned = any(True for one in encodings for _ in one.parameters())
        for panel in _by_hooks(Layer(encodings, stack.size, reach.defined), reach, color):
            if number and panel.key.startswith("embed"):
                continue  # the vectors are added before the first layer
            caption = panel.caption + reach.note + (note if learned and panel.key not in FIXED else "")
            panel = replace(panel, caption=caption)
            if len(layers) > 1:
                key = f"{panel.key}_{number + 1}" if number else panel.key
                panel = replace(panel, key=key, title=f"{panel.title} ({name} layers)")
            found.append(panel)
    return found


def _layers(stack: EncodingStack) -> dict[str, list[Encoding]]:
    """The encodings of the first of all layers that have the same ones, by their names."""
    found: dict[str, list[Encoding]] = {}
    for layer in range(stack.size.num_layers):
        encodings = stack.layer(layer).encodings
        found.setdefault(" + ".join(map(_innermost, encodings)), encodings)
    return found


def _innermost(encoding: Encoding) -> str:
    inside = [one for one in encoding.children() if isinstance(one, Encoding)]
    return " + ".join(map(_innermost, inside)) if inside else encoding.name


def _longest(spec: Any) -> int:
    """The longest list within an encoding: the pattern of `interleave` has no more entries than layers."""
    values = list(spec.values()) if isinstance(spec, dict) else spec if isinstance(spec, list | tuple) else []
    own = [len(one) for one in [spec, *values] if isinstance(one, list | tuple)]
    return max([0, *own, *map(_longest, values)])


def _by_hooks(layer: Layer, reach: Reach, color: str) -> Iterator[Panel]:
    if layer.uses("positions"):
        yield _positions(layer, reach, color)
    if layer.uses("embed"):
        yield from _vectors(layer, reach, color)
    if layer.uses("rotate"):
        yield from _rotation(layer, reach, color)
    if layer.uses("bias"):
        yield from _biases(layer, reach, color)
    if layer.uses("score", "logits"):
        yield _added_scores(layer, reach, color)
    if layer.uses("value"):
        yield _values(layer, reach, color)
    yield _attention(layer, reach, color)


def _positions(layer: Layer, reach: Reach, color: str) -> Panel:
    tokens = np.arange(layer.length)
    evaluated = np.asarray(layer.contexts[0].q_pos).reshape(-1, layer.length)[0]
    data = {"token": tokens, "drawn": layer.drawn_positions(), "evaluated": evaluated}

    def draw(axes, data):
        drawn = data["drawn"]
        for index, (line, shade) in enumerate(zip(drawn, plots.shades(color, len(drawn)), strict=True)):
            look = {"markersize": 2.2, "markeredgewidth": 0, "color": shade, "linestyle": "None"}
            axes.plot(data["token"], line, marker="os^D"[index % 4], label=f"step {index + 1}", **look)
        axes.plot(data["token"], data["evaluated"], color=INK, linewidth=1, label="evaluation")
        plots.mark_trained(axes, reach, "token")
        axes.set_ylabel("position id")
        axes.legend(**plots.LEGEND)

    return Panel(
        "positions", "Position ids in training",
        "Each training step draws new position ids (points), so that the model meets more positions than "
        "0, 1, 2; evaluation uses the line.", data, draw,
    )  # fmt: skip


def _vectors(layer: Layer, reach: Reach, color: str) -> Iterator[Panel]:
    vectors = layer.vectors()

    def draw_map(axes, data):
        plots.image(axes, data["vectors"].T, "added value", signed=True)
        plots.mark_trained(axes, reach, "position (tokens)")
        axes.set_ylabel("dimension")

    yield Panel(
        "embed_map", "Vectors added to the tokens",
        "A column is the vector of one position. Where a pattern repeats, two positions share it.",
        {"vectors": vectors}, draw_map,
    )  # fmt: skip
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    table = units @ units.T
    offsets = [np.diagonal(table, k) for k in range(max(1, len(table) - reach.trained // 4))]
    mean = np.array([one.mean() for one in offsets])
    low, high = (np.array([np.quantile(one, share) for one in offsets]) for share in (0.025, 0.975))
    yield _similarity(
        "embed_similarity", "Mean cosine over p with the band of 95 % of them: a narrow band means that the "
        "distance alone decides.", (mean, low, high), "cosine of p and p + k", reach, color,
    )  # fmt: skip


def _similarity(
    key: str, caption: str, line: tuple[np.ndarray, ...], unit: str, reach: Reach, color: str
) -> Panel:
    mean, low, high = line
    data = {"distance": np.arange(len(mean)), "mean": mean, "low": low, "high": high}

    def draw(axes, data):
        axes.axhline(0, color=FAINT, linewidth=0.6)
        axes.fill_between(data["distance"], data["low"], data["high"], color=color, alpha=0.2, linewidth=0)
        axes.plot(data["distance"], data["mean"], color=color, linewidth=1.3)
        plots.mark_trained(axes, reach, "k (tokens)")
        axes.set_ylabel(unit)

    return Panel(key, "Similarity of positions p and p + k", caption, data, draw)


def _rotation(layer: Layer, reach: Reach, color: str) -> Iterator[Panel]:
    angles = layer.angles()
    if angles is not None:
        yield _angles(angles, reach, color)
    yield _similarity(
        "similarity", "Score of the last token with its own copy k tokens earlier, as a share of that with "
        f"itself: mean over {COPIES} random tokens and all heads, with its 95 % interval.",
        _interval(layer.copies()), "score, k = 0 is 1", reach, color,
    )  # fmt: skip


def _angles(angles: np.ndarray, reach: Reach, color: str) -> Panel:
    turns = np.abs(angles) / (2 * np.pi)
    short = int((turns[min(reach.trained, len(turns)) - 1] < 1).sum())

    def draw(axes, data):
        plots.plain_log(axes)
        for line, shade in zip(data["turns"].T, plots.shades(color, data["turns"].shape[1]), strict=True):
            axes.plot(data["position"][line > 0], line[line > 0], color=shade, linewidth=0.9)
        axes.axhline(1, color=INK, linewidth=0.9, linestyle="--")
        plots.mark_trained(axes, reach, "position (tokens)")
        axes.set_ylabel("angle (turns)")
        axes.set_ylim(bottom=max(1e-5, axes.get_ylim()[0]))

    return Panel(
        "angles", "Angle of each pair of dimensions",
        f"A line for each pair; dashed: one full turn. {short} of {turns.shape[1]} pairs complete no turn "
        "within the trained length, so a trained model meets new angles beyond it.",
        {"position": np.arange(len(turns)), "turns": turns}, draw,
    )  # fmt: skip


def _biases(layer: Layer, reach: Reach, color: str) -> Iterator[Panel]:
    table = layer.biases()

    def draw_curves(axes, data):
        plots.heads(axes, data["distance"], data["bias"], color)
        plots.mark_trained(axes, reach, "distance (tokens)")
        axes.set_ylabel("bias (nats)")
        top = float(data["bias"].max())
        if np.ptp(data["bias"]) > DEPTH:
            axes.set_ylim(top - DEPTH, top + 0.06 * DEPTH)

    by_distance = table[:, -1, ::-1].copy()  # of the last query to the keys before it
    cut = f" Cut off {DEPTH:.0f} nats below the highest." if np.ptp(by_distance) > DEPTH else ""
    yield Panel(
        "bias_by_distance", "Bias of each head by distance",
        f"Added to the score of a key so far before the last query: the lower, the less attention.{cut}",
        {"distance": np.arange(layer.length), "bias": by_distance}, draw_curves,
    )  # fmt: skip
    heads = plots.spread(len(table), 2)
    shown = np.where(layer.contexts[0].allowed().numpy(), table[heads], np.nan)

    def draw_tables(axes, data):
        names = [f"head {head + 1}" for head in heads]
        plots.matrices(axes, data["bias"], names, reach.trained, "bias (nats)", DEPTH)

    yield Panel(
        "bias_matrix", "The bias of every query and key",
        "A row for each query, empty where the mask hides a key. Stripes along the diagonal: the distance "
        "alone decides. Dotted: the trained length.", {"bias": shown}, draw_tables,
    )  # fmt: skip


def _added_scores(layer: Layer, reach: Reach, color: str) -> Panel:
    distance, each = _by_distance(layer.of_content[1], reach.trained)
    mean, low, high = _interval(each)

    def draw(axes, data):
        axes.axhline(0, color=FAINT, linewidth=0.6)
        plots.heads(axes, data["distance"], data["mean"], color, data["low"], data["high"])
        plots.mark_trained(axes, reach, "distance (tokens)")
        axes.set_ylabel("added to the score (nats)")
        top = float(data["mean"].max())
        if np.ptp(data["mean"]) > 2 * DEPTH:
            axes.set_ylim(top - 2 * DEPTH, top + 0.14 * DEPTH)

    return Panel(
        "score_by_distance", "Scores that depend on content",
        f"Mean over {CONTENTS} random contents with its 95 % interval." + _noise(low, high, 0.0),
        {"distance": distance, "mean": mean, "low": low, "high": high}, draw,
    )  # fmt: skip


def _values(layer: Layer, reach: Reach, color: str) -> Panel:
    def draw(axes, data):
        plots.heads(axes, data["distance"], data["length"], color)
        plots.mark_trained(axes, reach, "distance (tokens)")
        axes.set_ylabel("length of the added vector")
        axes.set_ylim(bottom=0)

    return Panel(
        "value_by_distance", "Vectors added to the output",
        "The length of the vector that a head's output gets for a key at this distance. A constant end is "
        "where distances are clipped.",
        {"distance": np.arange(layer.length), "length": layer.values()}, draw,
    )  # fmt: skip


def _attention(layer: Layer, reach: Reach, color: str) -> Panel:
    """Attention of a random content by distance, as a multiple of an equal share."""
    counts = layer.contexts[0].allowed().sum(-1).numpy()
    distance, each = _by_distance(layer.of_content[0] * counts[:, None], reach.trained)
    mean, _, end = _interval(np.maximum(each, 1e-12))
    # The interval of the logarithm (delta method), since a share is positive.
    factor = np.exp(end / mean - 1)
    data = {"distance": distance, "mean": mean, "low": mean / factor, "high": mean * factor}

    def draw(axes, data):
        plots.plain_log(axes)
        axes.axhline(1, color=FAINT, linewidth=0.8)
        lines = [np.maximum(data[name], FLOOR / 3) for name in ("mean", "low", "high")]
        plots.heads(axes, data["distance"], lines[0], color, *lines[1:])
        plots.mark_trained(axes, reach, "distance (tokens)")
        axes.set_ylabel("attention (× equal share)")
        bottom, top = max(FLOOR, float(data["mean"].min()) / 1.5), float(data["high"].max()) * 1.5
        axes.set_ylim(min(bottom, 0.4), max(top, 2.5))

    return Panel(
        "attention", "Attention to a random content",
        f"Of the last queries; 1 is an equal share. Mean over {CONTENTS} random contents with its 95 % "
        "interval." + _noise(data["low"], data["high"], 1.0), data, draw,
    )  # fmt: skip


def _by_distance(table: np.ndarray, trained: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances [N], and of a table [B,H,T,T] the mean over the last queries at each, [B,H,N].

    The queries are half as many as the trained length; the distances are those that all of them have.
    """
    length = table.shape[-1]
    last = max(1, min(trained, length) // 2)
    count = length - last + 1
    rows = np.stack([table[:, :, row, row - count + 1 : row + 1] for row in range(length - last, length)])
    return np.arange(count), rows.mean(0)[..., ::-1]


def _interval(each: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean over the first axis, and both ends of its 95 % interval (Student's t)."""
    mean = each.mean(0)
    margin = stdtrit(len(each) - 1, 0.975) * each.std(0, ddof=1) / len(each) ** 0.5
    return mean, mean - margin, mean + margin


def _noise(low: np.ndarray, high: np.ndarray, neutral: float) -> str:
    """A sentence where nearly all intervals contain the neutral value."""
    inside = ((low <= neutral) & (high >= neutral)).mean()
    return " All distances are alike up to noise." if inside > 0.85 else ""
