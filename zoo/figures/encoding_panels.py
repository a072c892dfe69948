"""The panels of the encodings of one layer: each hook that they override has its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from scipy.special import stdtrit

from zoo.figures import plots
from zoo.figures.grid import Data, Panel
from zoo.figures.hooks import CONTENTS, COPIES, Layer
from zoo.figures.plots import Reach
from zoo.figures.style import FAINT, INK

DEPTH = 10.0
"""Nats below the highest bias that are drawn: attention there is below e^-10 of the largest."""
FLOOR = 1e-3
"""Attention, as a multiple of an equal share, that is drawn as zero."""


@dataclass(frozen=True)
class HookPanels:
    """The panels of one layer, in one colour."""

    layer: Layer
    reach: Reach
    color: str

    def __iter__(self) -> Iterator[Panel]:
        if self.layer.uses("positions"):
            yield self.positions()
        if self.layer.uses("embed"):
            yield from self.vectors()
        if self.layer.uses("rotate"):
            yield from self.rotation()
        if self.layer.uses("bias"):
            yield from self.biases()
        if self.layer.uses("score", "logits"):
            yield self.added_scores()
        if self.layer.uses("value"):
            yield self.values()
        yield self.attention()

    def _marked(
        self, key: str, title: str, caption: str, data: Data, unit: str, axis: str,
        draw: Callable[[Axes, Data], Any],
    ) -> Panel:  # fmt: skip
        """A panel over positions or distances, with the trained length marked."""

        def draw_marked(axes: Axes, data: Data) -> None:
            draw(axes, data)
            plots.mark_trained(axes, self.reach, f"{axis} (tokens)")
            axes.set_ylabel(unit)

        return Panel(key, title, caption, data, draw_marked)

    def _of_heads(
        self, key: str, title: str, caption: str, unit: str, draw: Callable[[Axes, Data], Any],
        mean: np.ndarray, *ends: np.ndarray,
    ) -> Panel:  # fmt: skip
        """A line for each head by distance, [H,N], with the `ends` of its interval.

        Args:
            draw: called before the lines are drawn.
        """
        data = dict(zip(("mean", "low", "high"), (mean, *ends), strict=False))
        data["distance"] = np.arange(mean.shape[1])

        def draw_heads(axes: Axes, data: Data) -> None:
            draw(axes, data)
            lines = [data[name] for name in ("mean", "low", "high") if name in data]
            if axes.get_yscale() == "log":
                lines = [np.maximum(line, FLOOR / 3) for line in lines]
            plots.heads(axes, data["distance"], lines[0], self.color, *lines[1:])

        return self._marked(key, title, caption, data, unit, "distance", draw_heads)

    def positions(self) -> Panel:
        evaluated = np.asarray(self.layer.contexts[0].q_pos).reshape(-1, self.layer.length)[0]
        data = {"drawn": self.layer.drawn_positions(), "evaluated": evaluated}

        def draw(axes: Axes, data: Data) -> None:
            shades = plots.shades(self.color, len(data["drawn"]))
            for index, (line, shade) in enumerate(zip(data["drawn"], shades, strict=True)):
                look = {"markersize": 2.2, "markeredgewidth": 0, "color": shade, "linestyle": "None"}
                axes.plot(line, marker="os^D"[index % 4], label=f"step {index + 1}", **look)
            axes.plot(data["evaluated"], color=INK, linewidth=1, label="evaluation")
            axes.legend(**plots.LEGEND)

        return self._marked(
            "positions", "Position ids in training",
            "Each training step draws new position ids (points), so that the model meets more positions than "
            "0, 1, 2; evaluation uses the line.", data, "position id", "token", draw,
        )  # fmt: skip

    def vectors(self) -> Iterator[Panel]:
        vectors = self.layer.vectors()
        yield self._marked(
            "embed_map", "Vectors added to the tokens",
            "A column is the vector of one position. Where a pattern repeats, two positions share it.",
            {"vectors": vectors}, "dimension", "position",
            lambda axes, data: plots.image(axes, data["vectors"].T, "added value", signed=True),
        )  # fmt: skip
        units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        table = units @ units.T
        offsets = [np.diagonal(table, k) for k in range(max(1, len(table) - self.reach.trained // 4))]
        mean = np.array([one.mean() for one in offsets])
        low, high = (np.array([np.quantile(one, share) for one in offsets]) for share in (0.025, 0.975))
        yield self._similarity(
            "embed_similarity", "Mean cosine over p with the band of 95 % of them: a narrow band means that "
            "the distance alone decides.", "cosine of p and p + k", mean, low, high,
        )  # fmt: skip

    def _similarity(
        self, key: str, caption: str, unit: str, mean: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> Panel:
        data = {"distance": np.arange(len(mean)), "mean": mean, "low": low, "high": high}

        def draw(axes: Axes, data: Data) -> None:
            axes.axhline(0, color=FAINT, linewidth=0.6)
            band = data["distance"], data["low"], data["high"]
            axes.fill_between(*band, color=self.color, alpha=0.2, linewidth=0)
            axes.plot(data["distance"], data["mean"], color=self.color, linewidth=1.3)

        return self._marked(key, "Similarity of positions p and p + k", caption, data, unit, "k", draw)

    def rotation(self) -> Iterator[Panel]:
        groups = self.layer.head_groups
        for number, heads in enumerate(groups, 1):
            for panel in self._rotation_of(heads):
                if len(groups) > 1:
                    first, last = heads.start + 1, heads.stop
                    which = f"head {last}" if first == last else f"heads {first} to {last}"
                    key = panel.key if number == 1 else f"{panel.key}_{number}"
                    panel = replace(panel, key=key, title=f"{panel.title} ({which})")
                yield panel

    def _rotation_of(self, heads: slice) -> Iterator[Panel]:
        angles = self.layer.angles(heads.start)
        if angles is not None:
            yield self.angles(np.abs(angles) / (2 * np.pi))
        yield self._similarity(
            "similarity", "Score of the last token with its own copy k tokens earlier, as a share of that "
            f"with itself: mean over {COPIES} random tokens and the heads, with its 95 % interval.",
            "score, k = 0 is 1", *_interval(self.layer.copies(heads)),
        )  # fmt: skip

    def angles(self, turns: np.ndarray) -> Panel:
        short = int((turns[min(self.reach.trained, len(turns)) - 1] < 1).sum())

        def draw(axes: Axes, data: Data) -> None:
            plots.plain_log(axes)
            lines, position = data["turns"].T, np.arange(len(data["turns"]))
            for line, shade in zip(lines, plots.shades(self.color, len(lines)), strict=True):
                axes.plot(position[line > 0], line[line > 0], color=shade, linewidth=0.9)
            axes.axhline(1, color=INK, linewidth=0.9, linestyle="--")
            axes.set_ylim(bottom=max(1e-5, axes.get_ylim()[0]))

        return self._marked(
            "angles", "Angle of each pair of dimensions",
            f"A line for each pair; dashed: one full turn. {short} of {turns.shape[1]} pairs complete no "
            "turn within the trained length, so a trained model meets new angles beyond it.",
            {"turns": turns}, "angle (turns)", "position", draw,
        )  # fmt: skip

    def biases(self) -> Iterator[Panel]:
        table = self.layer.biases()
        by_distance = table[:, -1, ::-1].copy()  # of the last query to the keys before it
        cut = f" Cut off {DEPTH:.0f} nats below the highest." if np.ptp(by_distance) > DEPTH else ""
        yield self._of_heads(
            "bias_by_distance", "Bias of each head by distance",
            f"Added to the score of a key so far before the last query: the lower, the less attention.{cut}",
            "bias (nats)", lambda axes, data: _cut_below(axes, data["mean"], DEPTH), by_distance,
        )  # fmt: skip
        heads = plots.spread(len(table), 2)
        shown = np.where(self.layer.contexts[0].allowed().numpy(), table[heads], np.nan)
        names = [f"head {head + 1}" for head in heads]
        yield Panel(
            "bias_matrix", "The bias of every query and key",
            "A row for each query, empty where the mask hides a key. Stripes along the diagonal: the "
            "distance alone decides. Dotted: the trained length.", {"bias": shown},
            lambda axes, data: plots.matrices(
                axes, data["bias"], names, self.reach.trained, "bias (nats)", DEPTH
            ),
        )  # fmt: skip

    def added_scores(self) -> Panel:
        mean, low, high = _interval(_by_distance(self.layer.of_content[1], self.reach.trained))

        def draw(axes: Axes, data: Data) -> None:
            axes.axhline(0, color=FAINT, linewidth=0.6)
            _cut_below(axes, data["mean"], 2 * DEPTH)

        return self._of_heads(
            "score_by_distance", "Scores that depend on content",
            f"Mean over {CONTENTS} random contents with its 95 % interval." + _noise(low, high, 0.0),
            "added to the score (nats)", draw, mean, low, high,
        )  # fmt: skip

    def values(self) -> Panel:
        return self._of_heads(
            "value_by_distance", "Vectors added to the output",
            "The length of the vector that a head's output gets for a key at this distance. A constant end "
            "is where distances are clipped.", "length of the added vector",
            lambda axes, data: axes.set_ylim(0, 1.05 * data["mean"].max() or 1.0), self.layer.values(),
        )  # fmt: skip

    def attention(self) -> Panel:
        """Attention of a random content by distance, as a multiple of an equal share."""
        counts = self.layer.contexts[0].allowed().sum(-1).numpy()
        each = _by_distance(self.layer.of_content[0] * counts[:, None], self.reach.trained)
        mean, _, end = _interval(np.maximum(each, 1e-12))
        # The interval of the logarithm (delta method), since a share is positive.
        factor = np.exp(end / mean - 1)
        low, high = mean / factor, mean * factor

        def draw(axes: Axes, data: Data) -> None:
            plots.plain_log(axes)
            axes.axhline(1, color=FAINT, linewidth=0.8)
            bottom = max(FLOOR, float(data["mean"].min()) / 1.5)
            axes.set_ylim(min(bottom, 0.4), max(float(data["high"].max()) * 1.5, 2.5))

        return self._of_heads(
            "attention", "Attention to a random content",
            f"Of the last queries; 1 is an equal share. Mean over {CONTENTS} random contents with its 95 % "
            "interval." + _noise(low, high, 1.0), "attention (× equal share)", draw, mean, low, high,
        )  # fmt: skip


def _cut_below(axes: Axes, values: np.ndarray, depth: float) -> None:
    """Let the axis end `depth` below the highest value, where values are lower."""
    top = float(values.max())
    if np.ptp(values) > depth:
        axes.set_ylim(top - depth, top + 0.06 * depth)


def _by_distance(table: np.ndarray, trained: int) -> np.ndarray:
    """Of a table [B,H,T,T] the mean over the last queries at each distance, [B,H,N].

    The queries are half as many as the trained length; the distances are those that all of them have.
    """
    length = table.shape[-1]
    last = max(1, min(trained, length) // 2)
    count = length - last + 1
    rows = np.stack([table[:, :, row, row - count + 1 : row + 1] for row in range(length - last, length)])
    return rows.mean(0)[..., ::-1]


def _interval(each: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean over the first axis, and both ends of its 95 % interval (Student's t)."""
    mean = each.mean(0)
    margin = stdtrit(len(each) - 1, 0.975) * each.std(0, ddof=1) / len(each) ** 0.5
    return mean, mean - margin, mean + margin


def _noise(low: np.ndarray, high: np.ndarray, neutral: float) -> str:
    """A sentence where nearly all intervals contain the neutral value."""
    inside = ((low <= neutral) & (high >= neutral)).mean()
    return " All distances are alike up to noise." if inside > 0.85 else ""
