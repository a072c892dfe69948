"""Panels of what a fixed content gets: scores that depend on it, attention, and how copies score."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import stdtrit

from zoo.figures.marks import Reach, chosen_heads, curves_of_heads, mark_reach, matrices, plain_log
from zoo.figures.panel import Panel
from zoo.figures.probes import CONTENTS, COPIES, Probe
from zoo.figures.style import FAINT, INK

DEPTH = 20.0
"""Nats below the highest score that are drawn."""
LEAST = 1e-12
FLOOR = 1e-3
"""Times its equal share, below which attention is not told from none."""


def added_scores(probe: Probe, reach: Reach, color: str) -> Iterator[Panel]:
    """Scores and logits that depend on content."""
    added = probe.of_content[1]
    distance, each = _by_distance(added, reach.trained, probe.length)
    mean, low, high = _interval(each)

    def paint(axes, data, limits):
        axes.axhline(0, color=FAINT, linewidth=0.6)
        curves_of_heads(axes, data["distance"], data["mean"], color, (data["low"], data["high"]))
        mark_reach(axes, reach)
        axes.set_ylabel("added to the score (nats)")
        bottom, top = float(data["mean"].min()), float(data["mean"].max())
        if top - bottom > DEPTH:
            axes.set_ylim(top - DEPTH, top + 0.07 * DEPTH)

    yield Panel(
        "score_by_distance", "What content and distance add to scores",
        f"The part of the scores that depends on content as well: mean over {CONTENTS} random contents, "
        "bands are 95 % intervals." + _noise(mean, low, high, 0.0),
        {"distance": distance, "mean": mean, "low": low, "high": high}, paint,
    )  # fmt: skip

    heads = chosen_heads(added.shape[1])
    shown = added[0, heads]

    def paint_tables(axes, data, limits):
        low, high = max(limits[0], limits[1] - DEPTH), limits[1]
        matrices(axes, data["added"], heads, reach, (low, max(high, low + 1e-6)), "added (nats)")

    yield Panel(
        "score_matrix", "The same for all pairs of one content",
        "Rows are queries, columns keys. Stripes along the diagonal: distance decides; down a column: that "
        "key's content. The colours hold 96 % of the values.",
        {"added": shown}, paint_tables, "added", outliers=0.02,
    )  # fmt: skip


def values(probe: Probe, reach: Reach, color: str) -> Panel:
    added = probe.values()

    def paint(axes, data, limits):
        curves_of_heads(axes, data["distance"], data["length"], color)
        mark_reach(axes, reach)
        axes.set_ylabel("length of the added vector")
        axes.set_ylim(bottom=0)

    return Panel(
        "value_by_distance", "What a distance adds to the output",
        "The length of the vector that is added to a head's output for a key so far away; a jump or a "
        "constant is where distances are clipped.",
        {"distance": np.arange(probe.length), "length": added}, paint,
    )  # fmt: skip


def copies(probe: Probe, reach: Reach, color: str) -> Panel:
    each = probe.copies()
    mean, low, high = _interval(each[:, None])
    data = {"distance": np.arange(probe.length), "mean": mean[0], "low": low[0], "high": high[0]}

    def paint(axes, data, limits):
        axes.axhline(0, color=FAINT, linewidth=0.6)
        axes.fill_between(data["distance"], data["low"], data["high"], color=color, alpha=0.22, linewidth=0)
        axes.plot(data["distance"], data["mean"], color=color, linewidth=1.3)
        mark_reach(axes, reach, "k (tokens)")
        axes.set_ylabel("score, k = 0 is 1")

    return Panel(
        "similarity", "Similarity of positions p and p + k",
        f"What the last token scores with its own copy k tokens earlier: mean over {COPIES} random tokens "
        "and all heads, band is the 95 % interval. The slower it falls, the farther copies are found.",
        data, paint,
    )  # fmt: skip


def mask_alone(probe: Probe, reach: Reach) -> Panel:
    """Of what has no hook: what the mask does."""
    length = probe.length
    table = np.tri(length) if probe.size.causal else np.ones((length, length))
    share = table / table.sum(1, keepdims=True)

    def paint(axes, data, limits):
        axes.plot(data["query"], data["share"], color=INK, linewidth=1.3)
        plain_log(axes)
        mark_reach(axes, reach, "query position (tokens)")
        axes.set_ylabel("share of each key it sees")

    if probe.size.causal:
        title = "What is left to the causal mask"
        said = "sees itself and what is before it, and nothing else tells places apart."
    else:
        title, said = "Nothing tells positions apart", "sees all others alike."
    data = {"query": np.arange(length), "share": share[:, 0]}
    return Panel("mask", title, f"No hook adds a position. A token {said}", data, paint)


def attention(probe: Probe, reach: Reach, color: str) -> Panel:
    """Attention of a random content by distance, as a multiple of an equal share."""
    weights = probe.of_content[0]
    counts = probe.contexts[0].allowed().sum(-1).numpy()
    times = weights * counts[:, None]
    distance, each = _by_distance(times, reach.trained, probe.length)
    mean, _, end = _interval(np.maximum(each, LEAST))
    # A share is above 0, and so is its interval: that of its logarithm (delta method).
    factor = np.exp(end / mean - 1)
    low, high = mean / factor, mean * factor
    data = {"distance": distance, "mean": mean, "low": low, "high": high}
    if probe.length > reach.trained:
        inside = times[:, :, : reach.trained, : reach.trained]
        data["inside_distance"], own = _by_distance(inside, reach.trained, reach.trained)
        data["inside"] = own.mean((0, 1))

    def paint(axes, data, limits):
        plain_log(axes)
        axes.axhline(1, color=FAINT, linewidth=0.8)
        floored = [np.maximum(data[name], FLOOR / 3) for name in ("mean", "low", "high")]
        curves_of_heads(axes, data["distance"], floored[0], color, (floored[1], floored[2]))
        if "inside" in data:
            axes.plot(
                data["inside_distance"], np.maximum(data["inside"], FLOOR / 3), color=INK, linewidth=1,
                linestyle=(0, (1, 1)), zorder=4, label="trained length, mean",
            )  # fmt: skip
            axes.legend(frameon=False, fontsize=6, handlelength=2.2, ncols=2, loc="best", labelspacing=0.2)
        mark_reach(axes, reach)
        axes.set_ylabel("attention (× equal share)")
        # Less than a factor of two either way is not to look like more.
        bottom, top = max(FLOOR, float(data["mean"].min()) / 1.5), float(data["high"].max()) * 1.5
        axes.set_ylim(min(bottom, 0.4), max(top, 2.5))

    queries = "Of queries at the end of what is drawn; " if "inside" in data else ""
    return Panel(
        "attention", "Attention that a fixed content gets",
        f"{queries}1 is an equal share; mean over {CONTENTS} random contents, bands are 95 % "
        "intervals."
        + _noise(mean, low, high, 1.0), data, paint,
    )  # fmt: skip


def _by_distance(table: np.ndarray, trained: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances [N], and of a table [B,H,T,S] the mean over the last queries at each: [B,H,N].

    Half as many queries as the trained length has, and the distances that all of them have.
    """
    last = max(1, min(trained, length) // 2)
    count = length - last + 1
    rows = np.stack([table[:, :, row, row - count + 1 : row + 1] for row in range(length - last, length)])
    return np.arange(count), rows.mean(0)[..., ::-1]


def _interval(each: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean over the first axis, and both ends of its 95 % interval (Student's t)."""
    mean = each.mean(0)
    margin = stdtrit(len(each) - 1, 0.975) * each.std(0, ddof=1) / len(each) ** 0.5
    return mean, mean - margin, mean + margin


def _noise(mean: np.ndarray, low: np.ndarray, high: np.ndarray, neutral: float) -> str:
    """Says so where the intervals hold the neutral value nearly everywhere."""
    held = ((low <= neutral) & (high >= neutral)).mean()
    return " No distance is told apart: what is seen is the noise of the contents." if held > 0.85 else ""
