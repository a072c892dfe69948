"""Losses at several lengths while a model trains: studies that read earlier checkpoints (`during`)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from board.measured import DISPLAYED
from results import Study
from zoo.figures.style import HUES, RC, content
from zoo.reports.text import markdown_table


def growth(study: Study, stored: Path) -> pd.DataFrame:
    """The bits per byte of every checkpoint that is read at several lengths.

    Columns: encoding, tokens (seen so far), length, value.
    """
    rows = []
    for entry in (entry for entry in study.entries(stored) if study.during and entry.run):
        data = entry.recipe.data
        name = DISPLAYED.get(entry.encoding, entry.encoding)
        for one in entry.run.measurements:
            if one.protocol in study.during.protocols and not one.changed:
                tokens = one.step * data.batch_size * data.sequence_length
                rows += [(name, tokens, row.length, row.bits_per_byte) for row in one.rows
                         if row.length in study.during.lengths and row.bits_per_byte is not None]  # fmt: skip
    columns = ["encoding", "tokens", "length", "value"]
    return pd.DataFrame(rows, columns=columns).sort_values(["length", "tokens"], kind="stable")


def growth_table(found: pd.DataFrame) -> str:
    """The values of the first checkpoint and of the last one, at each length."""
    least, most = (f"{tokens / 1e6:.1f}" for tokens in (found["tokens"].min(), found["tokens"].max()))
    ends = found.groupby(["encoding", "length"], sort=False)["value"].agg(["first", "last"])
    cells = ends["first"].map("{:.3f}".format) + " → " + ends["last"].map("{:.3f}".format)
    table = cells.unstack()
    heads = [f"encoding, {least} → {most} million tokens", *map(str, table)]
    return markdown_table(heads, [[name, *row] for name, *row in table.fillna("–").itertuples()])


def growth_figure(found: pd.DataFrame, trained: int) -> bytes:
    """Bits per byte over the tokens seen, a panel for each length, as PNG."""
    with rc_context(RC):
        lengths = [*found["length"].unique()]
        figure = Figure(figsize=(2.4 * len(lengths) + 0.6, 2.8), layout="constrained")
        panels = figure.subplots(1, len(lengths), sharey=True, squeeze=False).flat
        for axes, length in zip(panels, lengths, strict=True):
            at = found[found["length"] == length]
            for color, (name, own) in zip(HUES, at.groupby("encoding", sort=False), strict=False):
                axes.plot(own["tokens"] / 1e6, own["value"], "o-", color=color, markersize=3, label=name)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_title(f"{length} tokens ({length / trained:g}x)", fontsize=8)
            axes.set_xlabel("million tokens seen")
        axes.legend(fontsize=6.5)
        figure.axes[0].set_ylabel("bits per byte")
        return content(figure, ".png", dpi=200)
