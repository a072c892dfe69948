"""Losses at several lengths while a model trains: studies that read earlier checkpoints (`during`)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from board.measured import DISPLAYED
from results import Study, stored_runs
from zoo.figures.style import RC, content, styles
from zoo.reports.text import markdown_table

STARTED_FROM = "novels.parquet", "novels_rope_seed0"
"""The table and the run of the model that is trained on."""


def growth(study: Study, stored: Path) -> pd.DataFrame:
    """The bits per byte of every checkpoint that is read at several lengths. Of a study that trains a stored
    model on, also before that: with the options of each entry, and no tokens seen.

    Columns: encoding, tokens (seen so far), length, value.
    """
    rows = []
    for entry in (entry for entry in study.entries(stored) if study.during and entry.run):
        data, during = entry.recipe.data, study.during
        name = DISPLAYED.get(entry.encoding, entry.encoding)
        read = [one for one in entry.run.measurements if one.protocol in during.protocols and not one.changed]
        kind = next(one.kind for one in read if one.step == during.steps[0])
        if entry.recipe.init_from:
            first = stored_runs(stored / STARTED_FROM[0])[STARTED_FROM[1]]
            last = max(one.step for one in first.measurements)
            options = {"name": entry.encoding, **study.options.get(entry.encoding, {})}
            if options["name"] == first.origin["encoding"]:
                del options["name"]
            changed = {f"model.encoding.{key}": value for key, value in options.items()}
            read += [
                one.model_copy(update={"step": 0}) for one in first.measurements
                if one.changed == changed and one.step == last
            ]  # fmt: skip
        for one in (one for one in read if one.kind == kind):
            tokens = one.step * data.batch_size * data.sequence_length
            rows += [(name, tokens, row.length, row.bits_per_byte) for row in one.rows
                     if row.length in during.lengths and row.bits_per_byte is not None]  # fmt: skip
    columns = ["encoding", "tokens", "length", "value"]
    return pd.DataFrame(rows, columns=columns).sort_values(["length", "tokens"], kind="stable")


def growth_table(found: pd.DataFrame) -> str:
    """The values at the least number of tokens and at the greatest, at each length; between them the least
    value, where that is at neither."""
    values = found.pivot_table("value", ["encoding", "length"], "tokens", sort=False).sort_index(axis=1)
    least, most = (f"{count / 1e6:.1f}" for count in (values.columns[0], values.columns[-1]))
    cells = values.apply(_ends, axis=1).unstack()
    heads = [f"encoding, {least} → {most} million tokens", *map(str, cells)]
    return markdown_table(heads, [[name, *row] for name, *row in cells.fillna("–").itertuples()])


def _ends(values: pd.Series) -> str:
    between = [values.min()] if values.idxmin() not in values.index[[0, -1]] else []
    shown = [values.iloc[0], *between, values.iloc[-1]]
    return " → ".join("–" if pd.isna(value) else f"{value:.3f}" for value in shown)


def growth_figure(found: pd.DataFrame, trained: int) -> bytes:
    """Bits per byte over the tokens seen, a panel for each length, as PNG."""
    with rc_context(RC):
        lengths, looks = [*found["length"].unique()], styles(found["encoding"])
        figure = Figure(figsize=(2.4 * len(lengths) + 0.6, 2.8), layout="constrained")
        panels = figure.subplots(1, len(lengths), sharey=True, squeeze=False).flat
        for axes, length in zip(panels, lengths, strict=True):
            at = found[found["length"] == length]
            for name, own in at.groupby("encoding", sort=False):
                look = {"color": looks[name].color, "marker": looks[name].marker, "markersize": 4}
                axes.plot(own["tokens"] / 1e6, own["value"], label=name, **look)
            axes.set_xscale("symlog", base=2, linthresh=found["tokens"][found["tokens"] > 0].min() / 1e6)
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_title(f"{length} tokens ({length / trained:g}x)", fontsize=8)
            axes.set_xlabel("million tokens seen")
        axes.legend(fontsize=6.5)
        figure.axes[0].set_ylabel("bits per byte")
        return content(figure, ".png", dpi=200)
