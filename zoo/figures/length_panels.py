"""What becomes of attention as sequences grow: how even it is, and how much of it the first token gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.evaluation.activations import Activations, middles
from zoo.figures.attention_maps import spread
from zoo.figures.panel import Data, Limits, Panel
from zoo.figures.run_panels import LAYERS, draw_key, draw_line, mean_over_sequences, names_of
from zoo.figures.style import FAINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def by_length(observed: Mapping[int, Activations]) -> Panel | None:
    """Entropy as a share of log n, and the weight on the first token, of the queries in the second half of
    sequences of each length; None where there is one length alone.

    Args:
        observed: by length, in tokens.
    """
    lengths = sorted(observed)
    if len(lengths) < 2:
        return None
    trained = observed[lengths[0]].trained
    layers = spread(observed[lengths[0]].entropy.shape[1], LAYERS)
    data: dict[str, Any] = {"length": np.array(lengths), "layers": np.array(layers)}
    lines = []
    for dash, kind in enumerate(("share", "first")):
        for layer in layers:
            parts = [late(observed[length], getattr(observed[length], kind)[:, layer]) for length in lengths]
            columns = [mean_over_sequences(part) for part in parts]
            name = f"layer_{layer}_{kind}"
            line = [np.concatenate(ends) for ends in zip(*columns, strict=True)]
            data |= dict(zip(names_of(name), line, strict=True))
            lines.append((layer, dash, name))

    def paint(axes: Axes, data: Data, limits: Limits | None) -> None:
        for layer, dash, name in lines:
            draw_line(axes, data["length"], [data[one] for one in names_of(name)], layer, layers, dash)
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.minorticks_off()
        axes.set_xlabel("length of the sequence (tokens)")
        axes.set_ylabel("share")
        axes.set_ylim(0, 1.4)  # room for the names of the lines
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        if lengths[-1] > trained:
            axes.axvspan(trained, lengths[-1], color=FAINT, alpha=0.12, linewidth=0, zorder=0)
        axes.axvline(trained, color=FAINT, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=0)
        draw_key(axes, layers, ["entropy / log n", "on the first token"])

    return Panel(
        "attention_by_length", "Evenness of attention and its sink by length",
        "Of queries in the second half of sequences: entropy as a share of log n, and the weight on the "
        "first token. Attention that grows more even disperses; a sink that fades beyond the trained length "
        "gives its weight to others.",
        data, paint,
    )  # fmt: skip


def late(seen: Activations, values: np.ndarray) -> np.ndarray:
    """[W,1]: the mean of values [W,H,N] over heads and over the positions of a sequence's second half."""
    bins = middles(seen.bins) >= seen.length / 2
    kept, widths = values[..., bins], np.diff(seen.bins)[bins]
    weights = np.where(np.isfinite(kept), widths, 0.0)
    total = weights.sum((1, 2))
    mean = (np.nan_to_num(kept) * weights).sum((1, 2)) / np.where(total > 0, total, np.nan)
    return mean[:, None]
