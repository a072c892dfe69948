"""The figure of a study: shares of right answers of seeds and their mean, or changes of the loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from board.measured import Measured
from zoo import registry
from zoo.comparison.formatting import number
from zoo.figures.curves import LINEAR, Plot, one_plot
from zoo.figures.style import FIRST

NEXT = (
    "path", "nape+entmax", "asentmax", "nape", "grape_a", "bam", "alibi+entmax", "stick_breaking",
    "cable", "dape", "dpb", "transformer_xl", "rope+sink", "p_rope",
)  # fmt: skip
"""After the most used encodings: heads of a board, and combinations. All others follow by name."""
UNITS = {"bits_per_byte": "bits per byte", "loss_nats": "nats"}
NOTHING = 0.1
"""A share of right answers; a length at which no seed of any encoding has more is not drawn."""


def picture(title: str, plot: Plot) -> bytes:
    """A figure in which each encoding looks as on all other pages."""
    others = sorted({*registry.encodings.names()} - {*FIRST, *NEXT})
    return one_plot(plot, title, [*NEXT, *others])


def task_plot(
    rows: pd.DataFrame, floors: Mapping[str, Mapping[str, float]], strong: Sequence[str] = ()
) -> Plot:
    """The shares of right tokens or answers of seeds and their mean, of the rows of one measure."""
    rows = rows[rows["value"].notna()]
    rows = rows[rows["length"] <= rows.loc[rows["value"] > NOTHING, "length"].max()]
    lines = {
        name: pd.DataFrame(
            [(int(at), one["value"].mean(), dict(zip(one["seed"], one["value"], strict=True)), None)
             for at, one in own.groupby("length")], columns=["length", "value", "values", "note"],
        )
        for name, own in rows.groupby("encoding", sort=False) if own["length"].nunique() > 1
    }  # fmt: skip
    lengths = sorted({*rows["length"]})
    known = {*map(str, lengths)} <= floors.keys()
    floor = {length: max(floors[str(length)].values()) for length in lengths} if known else {}
    bottom = math.floor(10 * rows.loc[rows["encoding"].isin(lines), "value"].min()) / 10 - 0.03
    whole = "tokens" if rows["measure"].iloc[0] == "token_accuracy" else "answers"
    trained = [int(rows["train_length"].min())]
    return Plot(lines, f"share of right {whole}", (bottom, 1.03), trained, floor=floor, strong=strong)


def change_plot(
    one: Measured, names: Sequence[str], protocol: str, strong: Sequence[str] = (), against: str = ""
) -> Plot:
    """The change of the loss from the trained length: from each encoding's own loss, or from that of one
    (`against`). The loss at the trained length follows the name."""
    lines, texts, means = {}, {}, one.means(protocol)
    for name in names:
        own, first = means.loc[name].dropna(), means.loc[against or name].get(one.trained, math.nan)
        if len(own) > 1 and one.trained in own and not math.isnan(first):
            line = pd.DataFrame({"length": own.index, "value": own.to_numpy() - first}).assign(note=None)
            lines[name], texts[name] = line, f"{name} ({number(own[one.trained])})"
    every = pd.concat(lines.values())["value"]
    ends = 1.3 * min(every.min(), -LINEAR / 2), 1.3 * max(every.max(), LINEAR)
    whose = f" of {against}" if against else ""
    unit = f"{UNITS[one.measure]} more than{whose} at {one.trained} tokens"
    return Plot(lines, unit, ends, [one.trained], strong=strong, is_change=True, texts=texts)
