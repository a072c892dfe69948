"""The choice of the training setting of each task: the grid of `scripts/studies/00_setting_*.yaml`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from board.measured import LEARNED
from board.text import DASH, table
from results import Study

PREFIX = "setting_"
OWN_START = (
    ("alibi", "fixed slopes 2^(-8h/H)", "Press et al. 2022, section 3"),
    ("cable", "w from N(0, 0.02), b 0", "no published value; as the other weights of GPT-2"),
    ("cope", "vectors 0", "the authors' code"),
    ("deberta", "tables and projections from N(0, 0.02)", "`transformers`, initializer_range 0.02"),
    ("dpb, fire", "the MLP as torch draws it; FIRE's c 0.1", "`x_transformers`; the code of DAPE"),
    ("fox", "w from N(0, 0.02), gate bias 0", "the authors' code"),
    ("kerple", "r1 from U(0, 2), r2 from U(0, 1)", "the authors' code"),
    ("learned", "table from N(0, 0.02)", "GPT-2"),
    ("path", "all weights from N(0, 0.02)", "the authors' model"),
    ("shaw", "vectors from N(0, 0.02)", "no published value; as the other weights of GPT-2"),
    ("t5", "bias from N(0, 1/sqrt(E)), gain sqrt(D) on the table", "`transformers`; `x_transformers`"),
    ("transformer_xl", "W, u and v from N(0, 0.02)", "the authors' code"),
)
"""Parts of an encoding with an initialization of their own, which `model.init_std` does not change."""


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


def settings_page(studies: Sequence[Study], stored: Path) -> dict[str, bytes]:
    """The page of all grids, by file name."""
    parts = [
        "# How the training setting is chosen",
        f"""\
One learning rate and one initialization serve all encodings of a task. They are chosen with one seed,
from the validation loss and the score at the trained length; no longer length is read. The chosen setting is
the one in which most of these encodings learn the task ({LEARNED:g} of the whole answers). Where several are
equal, and for text, the one with the smallest mean validation loss is taken. `init_std` is the standard
deviation of the initial weights; `auto` is 1/sqrt(width of a matrix's input).

Masked text is measured in a former setting, all other studies in the chosen one. Each page names its setting.
For these eight encodings seed 0 took part in the choice. For the tasks the entry of the grid in the chosen
setting is also the study's entry of seed 0. The grid of text ran on a GPU, its study on CPUs; it read the
same validation tokens as the study. Encodings that are not in a grid had no part in the choice.

Cells: the share of whole answers at the trained length and the validation loss in nats; for text, bits per
byte and the same.""",
    ]
    for study in studies:
        if study.name.startswith(PREFIX):
            parts += _section(study, stored)
    parts += [
        "## Initializations of their own",
        "Parts of an encoding whose initialization follows its source in every setting:",
        table(["encoding", "initialization", "source"], OWN_START),
    ]
    return {"settings.md": ("\n\n".join(parts) + "\n").encode()}


def _section(study: Study, stored: Path) -> list[str]:
    entries, grid = study.entries(stored), read_grid(study, stored)
    head = f"## {study.name.removeprefix(PREFIX)}"
    steps = study.recipe("none", 0).trainer.max_steps
    if grid.empty:
        return [head, f"`{study.base}`, {steps} steps. Not measured yet."]
    names, order = list(dict.fromkeys(entry.encoding for entry in entries)), ranked(grid)
    cells = {(one.setting, one.encoding): one for one in grid.itertuples()}
    is_task = study.is_task
    rows = []
    for setting, own in order.iterrows():
        values = [change.partition("=")[2] for change in setting]
        found = [cells.get((setting, name)) for name in names]
        digits = 2 if is_task else 3
        texts = [DASH if one is None else f"{one.score:.{digits}f} ({one.loss:.3f})" for one in found]
        rows.append([*values, *([f"{own['learned']:.0f}"] if is_task else []), f"{own['loss']:.3f}", *texts])
    keys = [f"`{key.rpartition('.')[2]}`" for key in study.grid]
    heads = [*keys, *(["learned"] if is_task else []), "mean loss", *names]
    complete = len(grid) == len(entries)
    chosen = ", ".join(f"`{change}`" for change in order.index[0])
    state = (
        f"Chosen: {chosen}."
        if complete
        else f"{len(grid)} of {len(entries)} measured; nothing is chosen yet."
    )
    return [head, f"`{study.base}`, {steps} steps. {state}", table(heads, rows)]
