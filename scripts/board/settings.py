"""The choice of the training setting of each task: the grid of `scripts/studies/00_setting_*.yaml`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from board.measured import LEARNED
from results import Study
from zoo.reports.text import markdown_table

PREFIX = "setting_"


def read_grid(study: Study, stored: Path) -> pd.DataFrame:
    """The stored entries of a study with a grid, a row each.

    Columns: setting, encoding, score (the share of whole answers, or bits per byte), loss (the last
    validation loss in nats), learns.
    """
    rows = []
    for entry in study.entries(stored):
        if run := entry.run:
            row = run.measurements[0].rows[0].model_dump(exclude_unset=True)
            score = row.get("accuracy", row.get("bits_per_byte"))
            learns = "accuracy" in row and score >= LEARNED
            loss = run.validation[max(run.validation)]
            rows.append((entry.setting, entry.encoding, score, loss, learns))
    return pd.DataFrame(rows, columns=["setting", "encoding", "score", "loss", "learns"])


def ranked(grid: pd.DataFrame) -> pd.DataFrame:
    """The settings of a complete grid, the chosen one first: the one in which most encodings learn, and of
    several the one with the smallest mean validation loss."""
    sums = grid.groupby("setting").agg(learned=("learns", "sum"), loss=("loss", "mean"))
    return sums.sort_values(["learned", "loss"], ascending=[False, True])


def settings_tables(studies: Sequence[Study], stored: Path) -> dict[str, str]:
    """The state and the table of each grid that has an entry, by the name of its study."""
    found = {}
    for study in (study for study in studies if study.name.startswith(PREFIX)):
        entries, grid = study.entries(stored), read_grid(study, stored)
        if grid.empty:
            continue
        order, digits = ranked(grid), 2 if study.is_task else 3
        cells = grid["score"].map(f"{{:.{digits}f}}".format) + grid["loss"].map(" ({:.3f})".format)
        table = grid.assign(cell=cells).pivot(index="setting", columns="encoding", values="cell")
        table = table.reindex(order.index, columns=dict.fromkeys(one.encoding for one in entries))
        table.insert(0, "mean loss", order["loss"].map("{:.3f}".format))
        if study.is_task:
            table.insert(0, "learned", order["learned"].map("{:.0f}".format))
        rows = (
            [*(one.partition("=")[2] for one in setting), *row]
            for setting, *row in table.fillna("").itertuples()
        )
        chosen = "Chosen: " + ", ".join(f"`{change}`" for change in order.index[0])
        if len(grid) < len(entries):
            chosen = f"{len(grid)} of {len(entries)} measured; nothing is chosen yet"
        heads = [*(f"`{key.rpartition('.')[2]}`" for key in study.grid), *table]
        steps = study.recipe("none", 0).trainer.max_steps
        found[study.name] = f"`{study.base}`, {steps} steps. {chosen}.\n\n{markdown_table(heads, rows)}"
    return found
