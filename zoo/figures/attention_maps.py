"""Maps of a trained model's attention on an excerpt: who looks at whom, in some heads of some layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from zoo.figures.panel import Data, Limits, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAYERS, HEADS = 3, 4
"""How many layers, and heads of each, have a map, at most."""


def spread(count: int, most: int) -> list[int]:
    """Which of `count` things are shown: all, or `most` of them evenly spread, the first and last included.

    >>> spread(3, 4), spread(24, 4)
    ([0, 1, 2], [0, 8, 15, 23])
    """
    if count <= most:
        return list(range(count))
    return [round(index * (count - 1) / (most - 1)) for index in range(most)]


def maps(weights: np.ndarray, names: Sequence[str]) -> list[Panel]:
    """The attention of some heads of some layers on an excerpt.

    Args:
        weights: [L,H,T,T].
        names: of the T tokens.
    """
    panels = []
    layers, heads = weights.shape[:2]
    rows = np.arange(weights.shape[-1])
    distance = (weights * np.abs(rows[:, None] - rows)).sum(-1).mean(-1)
    for number, layer in enumerate(spread(layers, LAYERS)):
        shown = np.argsort(distance[layer], kind="stable")[spread(heads, HEADS)]
        about = f"{len(shown)} of {heads} heads" if heads > len(shown) else "all heads"
        panels.append(
            Panel(
                key=f"attention_map_{number}",
                title=f"Attention on an excerpt: layer {layer + 1} of {layers}",
                caption=f"Each row is a token that looks, each column one it looks at; {about}, from the one "
                "that looks nearest to the one that looks farthest.",
                data={"weights": weights[layer, shown], "heads": shown, "names": np.array(names)},
                paint=_paint_maps,
            )
        )
    return panels


def _paint_maps(axes: Axes, data: Data, limits: Limits | None) -> None:
    from matplotlib.colors import PowerNorm

    axes.set_axis_off()
    weights, heads, names = data["weights"], data["heads"], list(data["names"])
    columns, size = min(2, len(heads)), weights.shape[-1]
    rows = math.ceil(len(heads) / columns)
    left, bottom, gap = 0.12, 0.16, 0.07
    wide, high = (1 - left) / columns, (1 - bottom) / rows
    for number, head in enumerate(heads):
        row, column = divmod(number, columns)
        place = [left + column * wide, bottom + (rows - 1 - row) * high, wide - 0.03, high - gap]
        tile = axes.inset_axes(place)
        # The square root of a weight: most of them are small.
        tile.imshow(
            weights[number], cmap="cividis", norm=PowerNorm(0.5, 0, 1), interpolation="nearest", aspect="auto"
        )
        tile.set_title(f"head {head + 1}", fontsize=6.5, pad=1.5)
        tile.tick_params(length=0, pad=1, labelsize=4.6)
        tile.set_xticks(range(size), names if row == rows - 1 else [""] * size, rotation=90)
        tile.set_yticks(range(size), names if column == 0 else [""] * size)
