"""The panels of the encodings of one layer: each hook that they override has its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from zoo.figures import plots
from zoo.figures.grid import Panel
from zoo.figures.hooks import CONTENTS, Layer
from zoo.figures.plots import Data, LinePlot, Reach
from zoo.figures.style import INK

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
        if self.layer.uses("embed"):
            yield self.vectors()
        if self.layer.uses("rotate"):
            yield from self.rotation()
        if self.layer.uses("bias"):
            yield from self.biases()
        yield self.attention()

    def _lines(
        self, key: str, title: str, caption: str, axis: str, unit: str, mean: np.ndarray,
        looks: Sequence[dict[str, Any]] = (), **options: Any,
    ) -> Panel:  # fmt: skip
        """A panel of lines [L,N], one for each head by default; `options` are those of `LinePlot`."""
        looks = looks or plots.looks_of_heads(len(mean), self.color)
        return Panel(key, title, caption, {"mean": mean}, LinePlot(self.reach, axis, unit, looks, **options))

    def vectors(self) -> Panel:
        vectors = self.layer.vectors()

        def draw(axes: Axes, data: Data) -> None:
            plots.image(axes, data["vectors"].T, "added value", signed=True)
            plots.token_axis(axes, self.reach, "position (tokens)")
            axes.set_ylabel("dimension")

        caption = "A column is the vector of one position. Where a pattern repeats, two positions share it."
        return Panel("embed_map", "Vectors added to the tokens", caption, {"vectors": vectors}, draw)

    def rotation(self) -> Iterator[Panel]:
        groups = self.layer.head_groups
        for number, heads in enumerate(groups, 1):
            angles = self.layer.angles(heads.start)
            if angles is None:
                continue
            turns = np.abs(angles.T) / (2 * np.pi)
            short = int((turns[:, min(self.reach.trained, turns.shape[1]) - 1] < 1).sum())
            yield self._lines(
                f"angles_{number}" if number > 1 else "angles",
                f"Angle of each pair of dimensions{f' ({_heads(heads)})' if len(groups) > 1 else ''}",
                f"A line for each pair; grey: one full turn. {short} of {len(turns)} pairs complete no "
                "turn within the trained length, so a trained model meets new angles beyond it.",
                "position", "angle (turns)", turns, level=1, log=True,
                looks=[{"color": shade} for shade in plots.shades(self.color, len(turns))],
                limits=(max(1e-5, turns[turns > 0].min(initial=1)), None),
            )  # fmt: skip

    def biases(self) -> Iterator[Panel]:
        table = self.layer.biases()
        by_distance = table[:, -1, ::-1].copy()  # of the last query to the keys before it
        cut = f" Cut off {DEPTH:.0f} nats below the highest." if np.ptp(by_distance) > DEPTH else ""
        yield self._lines(
            "bias_by_distance", "Bias of each head by distance",
            f"Added to the score of a key so far before the last query: the lower, the less attention.{cut}",
            "distance", "bias (nats)", by_distance, limits=_above(by_distance, DEPTH),
        )  # fmt: skip
        heads = plots.spread(len(table), 2)
        shown = np.where(self.layer.contexts[0].allowed().numpy(), table[heads], np.nan)
        size, trained, high = shown.shape[-1], self.reach.trained, float(np.nanmax(shown))
        limits = {"vmin": max(float(np.nanmin(shown)), high - DEPTH), "vmax": high}
        marks = [at for at in (0, trained) if at < size]

        def draw(axes: Axes, data: Data) -> None:
            starts = plots.side_by_side(axes, data["bias"], "bias (nats)", max(1, size // 12), **limits)
            ticks = [(start + at, str(at)) for start in starts for at in marks]
            axes.set_xticks(*zip(*ticks, strict=True))
            axes.set_yticks([*marks, size])
            axes.set_xlabel("keys of " + " | ".join(f"head {head + 1}" for head in heads), labelpad=1)
            axes.set_ylabel("query")
            for line, at in [(axes.axhline, trained), *((axes.axvline, start + trained) for start in starts)]:
                if trained < size:
                    line(at, color=INK, linewidth=0.8, linestyle=":")

        yield Panel(
            "bias_matrix", "The bias of every query and key",
            "A row for each query, empty where the mask hides a key. Stripes along the diagonal: the "
            "distance alone decides. Dotted: the trained length.", {"bias": shown}, draw,
        )  # fmt: skip

    def attention(self) -> Panel:
        """Attention of a random content by distance, as a multiple of an equal share."""
        counts = self.layer.contexts[0].allowed().sum(-1).numpy()
        mean = _by_distance((self.layer.of_content * counts[:, None]).mean(0), self.reach.trained)
        return self._lines(
            "attention", "Attention to a random content",
            f"Of the last queries; 1 is an equal share. Mean over {CONTENTS} random contents.",
            "distance", "attention (× equal share)", np.maximum(mean, 1e-12), level=1, log=True,
            limits=(min(max(FLOOR, float(mean.min()) / 1.5), 0.4), max(float(mean.max()) * 1.5, 2.5)),
        )  # fmt: skip


def _heads(heads: slice) -> str:
    first, last = heads.start + 1, heads.stop
    return f"head {last}" if first == last else f"heads {first} to {last}"


def _above(values: np.ndarray, depth: float) -> tuple[float | None, float | None]:
    """Limits of an axis that ends `depth` below the highest value, where values are lower."""
    top = float(values.max())
    return (top - depth, top + 0.06 * depth) if np.ptp(values) > depth else (None, None)


def _by_distance(table: np.ndarray, trained: int) -> np.ndarray:
    """The mean of a table [H,T,T] over the last queries at each distance, [H,N].

    The queries are half as many as the trained length; the distances are those of every query.
    """
    length = table.shape[-1]
    last = max(1, min(trained, length) // 2)
    count = length - last + 1
    rows = np.stack([table[:, row, row - count + 1 : row + 1] for row in range(length - last, length)])
    return rows.mean(0)[..., ::-1]
