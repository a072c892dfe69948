"""Length-generalization curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

MEASURES = ("accuracy", "bits_per_byte", "loss_nats")
"""What is drawn: the first of these that there is."""

HEIGHT_OF_FAILURE = 3.0
"""A loss this far above the best one (nats) is cut off by the plot; how a failed curve fails is no news."""


def plot_lengths(rows: Sequence[dict[str, Any]], file: Path, title: str | None = None) -> None:
    """Draw accuracy or loss against length, a line for each encoding, the trained length marked.

    Rows of several seeds of one encoding are points around their mean. Nothing is drawn where nothing was
    measured.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    measure = next((m for m in MEASURES if any(row.get(m) is not None for row in rows)), None)
    if measure is None:
        return
    # A note says why nothing was measured; None stands for what is not finite.
    rows = [row for row in rows if row.get(measure) is not None]
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    curves = sorted({row["encoding"] for row in rows})
    styles = ["-", "--", "-.", ":"]
    for index, encoding in enumerate(curves):
        own = [row for row in rows if row["encoding"] == encoding]
        lengths = sorted({row["length"] for row in own})
        points = [[row[measure] for row in own if row["length"] == length] for length in lengths]
        line = axes.plot(
            lengths, [sum(p) / len(p) for p in points], styles[index % len(styles)], marker="o", markersize=4,
            label=encoding,
        )[0]  # fmt: skip
        for length, values in zip(lengths, points, strict=True):
            if len(values) > 1:
                places = [length] * len(values)
                axes.plot(places, values, "o", color=line.get_color(), alpha=0.4, markersize=3)
    axes.set_xscale("log", base=2)
    ticks = sorted({row["length"] for row in rows})
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    for trained in {row["train_length"] for row in rows}:
        axes.axvline(trained, color="grey", linewidth=1, linestyle=":")
        axes.annotate(
            "trained",
            (trained, 1.01),
            xycoords=("data", "axes fraction"),
            ha="center",
            fontsize=8,
            color="grey",
        )
    axes.set_xlabel("sequence length (tokens)")
    axes.set_ylabel(measure.replace("_", " "))
    values = [row[measure] for row in rows]
    if measure == "accuracy":
        axes.set_ylim(-0.02, 1.02)
    else:
        top = min(values) * 2 if measure == "bits_per_byte" else min(values) + HEIGHT_OF_FAILURE
        axes.set_ylim(top=min(top, max(values) + 0.05 * (max(values) - min(values)) + 0.01))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False)
    if title:
        axes.set_title(title, fontsize=10)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
