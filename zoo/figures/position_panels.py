"""Panels of what positions alone give: positions, added vectors, angles, biases."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from zoo.figures.marks import (
    DASHED,
    Reach,
    chosen_heads,
    curves_of_heads,
    heat_map,
    mark_reach,
    matrices,
    plain_log,
    shades,
)
from zoo.figures.panel import Panel
from zoo.figures.probes import Probe
from zoo.figures.style import FAINT, INK

DEPTH = 10.0
"""Nats below the highest bias that are drawn: attention there is under e^-10 of the largest."""
MARKS = "os^D"
"""Of the steps of training."""
WAVES = 5
"""Dimensions drawn as waves."""


def positions(probe: Probe, drawn: np.ndarray, reach: Reach, color: str) -> Panel:
    """Where tokens stand while training, in several steps."""
    evaluated = np.asarray(probe.contexts[0].q_pos).reshape(-1, probe.length)[0]
    tokens = np.arange(probe.length)
    # Small moves are not seen beside the positions themselves.
    small = np.abs(drawn - tokens).max() < probe.length / 4
    less = tokens if small else 0 * tokens
    data = {"token": tokens, "drawn": drawn - less, "evaluated": evaluated - less}

    def paint(axes, data, limits):
        for index, (one, shade) in enumerate(
            zip(data["drawn"], shades(color, len(data["drawn"])), strict=True)
        ):
            axes.plot(
                data["token"], one, MARKS[index % len(MARKS)], markersize=2.2, markeredgewidth=0, color=shade,
                label=f"training step {index + 1}",
            )  # fmt: skip
        axes.plot(data["token"], data["evaluated"], color=INK, linewidth=1, label="evaluation")
        mark_reach(axes, reach, "token")
        axes.set_ylabel("position id less token" if small else "position id")
        axes.legend(framealpha=0.85, edgecolor="none", fontsize=6, markerscale=2.5, loc="best")

    return Panel(
        "positions", "Where tokens stand",
        "Each step of training places the tokens anew (points), so that other positions are met than 0, 1, "
        "2; the line is what evaluation uses.", data, paint,
    )  # fmt: skip


def added_vectors(probe: Probe, reach: Reach, color: str) -> Iterator[Panel]:
    vectors = probe.vectors()
    where = np.arange(probe.length)

    def paint_map(axes, data, limits):
        heat_map(axes, data["vectors"], reach, limits, "dimension", "added value")

    yield Panel(
        "embed_map", "Vectors added to the tokens",
        "A column is the vector of one position; a pattern that repeats to the right is one that two "
        "positions share.", {"vectors": vectors}, paint_map, "vectors",
    )  # fmt: skip

    width = vectors.shape[1]
    dimensions = np.unique(np.geomspace(1, width * 0.75, WAVES).astype(int) - 1)

    def paint_waves(axes, data, limits):
        largest = float(np.abs(data["waves"]).max()) or 1.0
        for row, shade in enumerate(shades(color, len(data["dimensions"]))):
            line = data["waves"][:, row] / (2.2 * largest) - row
            axes.plot(data["position"], line, color=shade, linewidth=1)
        axes.set_yticks(
            [-row for row in range(len(data["dimensions"]))], [f"dim {d}" for d in data["dimensions"]]
        )
        mark_reach(axes, reach, "position (tokens)")
        axes.set_ylim(-len(data["dimensions"]) + 0.4, 0.75)

    yield Panel(
        "embed_waves", "The same, dimension by dimension",
        "Each line is one dimension over the positions: fast waves tell neighbours apart, slow ones "
        "far ones; noise is a table without order.",
        {"position": where, "dimensions": dimensions, "waves": vectors[:, dimensions]}, paint_waves,
    )  # fmt: skip
    # Its scale is that of `similarity`, of which a rotation beside it has its own.
    key = "embed_similarity" if probe.uses("rotate") else "similarity"
    yield _similarity(key, vectors, reach, color)


def _similarity(key: str, vectors: np.ndarray, reach: Reach, color: str) -> Panel:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.where(norms > 0, norms, 1)
    table = units @ units.T
    count = max(1, len(vectors) - max(1, reach.trained // 4))
    offsets = [np.diagonal(table, k) for k in range(count)]
    data = {
        "distance": np.arange(count),
        "mean": np.array([one.mean() for one in offsets]),
        "low": np.array([np.quantile(one, 0.025) for one in offsets]),
        "high": np.array([np.quantile(one, 0.975) for one in offsets]),
    }

    def paint(axes, data, limits):
        axes.axhline(0, color=FAINT, linewidth=0.6)
        axes.fill_between(data["distance"], data["low"], data["high"], color=color, alpha=0.18, linewidth=0)
        axes.plot(data["distance"], data["mean"], color=color, linewidth=1.3)
        mark_reach(axes, reach, "k (tokens)")
        axes.set_ylabel("cosine of p and p + k")
        axes.set_ylim(-1.05, 1.05)

    return Panel(
        key, "Similarity of positions p and p + k",
        "Mean over p, with the band that holds 95 % of them: a narrow band means that distance alone "
        "decides; where it is flat, distances look alike.", data, paint,
    )  # fmt: skip


def rotation(probe: Probe, reach: Reach, color: str) -> Iterator[Panel]:
    angles = probe.angles()
    where = np.arange(probe.length)
    if angles is not None:
        yield _angles(where, angles, reach, color)
        yield _wavelengths(angles, reach, color)
    q, k = probe.scales()
    # An encoding may take the whole product out, to put its own in its place: lengths of 0.
    if max(np.ptp(q), np.ptp(k)) <= 1e-3 * max(q.max(), k.max()):
        return

    def paint(axes, data, limits):
        for name, dash, shade in zip(("queries", "keys"), DASHED[:2], shades(color, 2), strict=True):
            axes.plot(data["position"], data[name], color=shade, linestyle=dash, linewidth=1.3, label=name)
        mark_reach(axes, reach, "position (tokens)")
        axes.set_ylabel("length after / before")
        axes.legend(frameon=False, fontsize=6, loc="best")

    yield Panel(
        "rotated_length", "Length of queries and keys by position",
        "Above 1 the scores of a position are larger, and its attention sharper.",
        {"position": where, "queries": q, "keys": k}, paint,
    )  # fmt: skip


def _angles(where: np.ndarray, angles: np.ndarray, reach: Reach, color: str) -> Panel:
    turns = np.abs(angles) / (2 * np.pi)

    def paint(axes, data, limits):
        count = data["turns"].shape[1]
        plain_log(axes)
        for index, shade in enumerate(shades(color, count)):
            line = data["turns"][:, index]
            axes.plot(data["position"][line > 0], line[line > 0], color=shade, linewidth=0.9)
        axes.axhline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
        axes.text(
            reach.length * 0.99, 1, "one full turn", fontsize=6, va="center", ha="right", zorder=6,
            bbox={"facecolor": "#ffffff", "edgecolor": "none", "pad": 1, "alpha": 0.85},
        )  # fmt: skip
        mark_reach(axes, reach, "position (tokens)")
        axes.set_ylabel("angle (turns)")
        axes.set_ylim(bottom=max(1e-5, axes.get_ylim()[0]))

    short = int((turns[min(reach.trained, len(turns)) - 1] < 1).sum())
    return Panel(
        "angles", "Angle of each pair of dimensions",
        f"A line is a pair, the fastest on top. {short} of {turns.shape[1]} pairs cross “one full turn” "
        "only beyond the trained length, or never: a model trained with these angles meets new ones there.",
        {"position": where, "turns": turns}, paint,
    )  # fmt: skip


def _wavelengths(angles: np.ndarray, reach: Reach, color: str) -> Panel:
    context = max(1, len(angles) - 1)
    speed = np.abs(angles[-1] - angles[0]) / context
    turning = speed > 1e-9
    waves = np.full(len(speed), np.nan)
    waves[turning] = 2 * np.pi / speed[turning]

    def paint(axes, data, limits):
        pair, wave = data["pair"], data["wavelength"]
        within = wave <= reach.trained
        axes.plot(
            pair[within],
            wave[within],
            "o",
            color=color,
            markersize=4,
            label="turns within the trained length",
        )
        axes.plot(
            pair[~within], wave[~within], "s", color=color, markerfacecolor="none", markersize=4,
            label="does not",
        )  # fmt: skip
        plain_log(axes, 2)
        axes.axhline(reach.trained, color=FAINT, linewidth=0.9, linestyle=(0, (1, 1.5)))
        axes.axhline(reach.length, color=FAINT, linewidth=0.9)
        for at, said in ((reach.trained, "trained"), (reach.length, "length drawn")):
            axes.text(-0.5, at, said, fontsize=6, color=INK, ha="left", va="bottom")
        axes.set_xlim(-0.6, len(pair) - 0.4)
        axes.set_xlabel("pair of dimensions")
        axes.set_ylabel("wavelength (tokens)")
        axes.legend(frameon=False, fontsize=6, loc="lower right")

    still = int((~turning).sum())
    return Panel(
        "wavelengths", "Wavelength against the trained length",
        "Tokens for one full turn of each pair. Open squares never finish one within the trained length."
        + (f" {still} pairs do not turn at all and are left out." if still else ""),
        {"pair": np.arange(len(speed)), "wavelength": waves}, paint,
    )  # fmt: skip


def biases(probe: Probe, reach: Reach, color: str) -> Iterator[Panel]:
    table = probe.biases()
    # The distances of the last query to the keys before it.
    by_distance = table[:, -1, ::-1].copy()

    def paint_curves(axes, data, limits):
        curves_of_heads(axes, data["distance"], data["bias"], color)
        mark_reach(axes, reach)
        axes.set_ylabel("bias (nats)")
        top = float(data["bias"].max())
        low = float(data["bias"].min())
        if top - low > DEPTH:
            axes.set_ylim(top - DEPTH, top + 0.06 * DEPTH)
        elif top - low < 1e-6:
            axes.set_ylim(top - 1, top + 1)

    cut = (
        " Cut off 10 nats below the highest, where attention is nearly 0."
        if np.ptp(by_distance) > DEPTH
        else ""
    )
    yield Panel(
        "bias_by_distance", "Bias of each head by distance",
        "What is added to the score of a key so far before the last query: the lower, the less attention."
        + cut,
        {"distance": np.arange(probe.length), "bias": by_distance}, paint_curves,
    )  # fmt: skip

    heads = chosen_heads(len(table))
    shown = table[heads]
    if probe.size.causal:
        shown = np.where(np.tri(probe.length, dtype=bool), shown, np.nan)

    def paint_tables(axes, data, limits):
        low, high = limits
        matrices(axes, data["bias"], heads, reach, (max(low, high - DEPTH), high), "bias (nats)")

    yield Panel(
        "bias_matrix", "The bias of every query and key",
        "Rows are queries, columns keys; grey is what the causal mask hides. Stripes along the diagonal: "
        "distance alone decides. Dotted: the trained length.", {"bias": shown}, paint_tables, "bias",
    )  # fmt: skip
