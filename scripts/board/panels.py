"""The panel of a study: shares of right answers of seeds and their mean, or paired changes of the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from board.boards import Boards
from board.figures import Curve, StudyPanel
from board.measured import Measured
from board.pairs import UnitLosses, mean_over_seeds
from zoo.comparison.formatting import number

UNITS = {"bits_per_byte": "bits per byte", "loss_nats": "nats"}
NOTHING = 0.1
"""A share of right answers; a length at which no seed of any encoding has more is not drawn."""


def drawn_protocol(one: Measured) -> str:
    """`sliding` for a text that has it, which has no early-token effect; else the first protocol."""
    return "sliding" if "sliding" in one.study.protocols else one.study.protocols[0]


def study_panel(one: Measured, boards: Boards) -> StudyPanel:
    """The panel of a study for the most used encodings and the best ones."""
    shown = boards.shown(one)
    if one.is_task:
        rows = one.rows[(one.rows["measure"] == one.measure) & one.rows["name"].isin(shown)]
        return task_panel(one.title, rows, one.trained, boards.floors[one.title][one.measure])
    protocol = drawn_protocol(one)
    title = f"{one.title}, {protocol}: change of the loss from {one.trained} tokens (loss there in brackets)"
    losses = {encoding: one.losses(encoding, protocol) for encoding in shown}
    return change_panel(title, UNITS[one.measure], one.trained, losses)


def task_panel(
    title: str,
    rows: pd.DataFrame,
    trained: int,
    floors: Mapping[str, Mapping[str, float]],
    subject: Sequence[str] = (),
) -> StudyPanel:
    """The shares of right tokens or answers of seeds and their mean, of the rows of one measure."""
    rows = rows[rows["value"].notna()]
    alive = rows.groupby("length")["value"].max().loc[lambda best: best > NOTHING].index.max()
    rows = rows[rows["length"] <= alive]
    curves = {}
    for name, own in rows.groupby("name", sort=False):
        each = {int(length): [*values] for length, values in own.groupby("length")["value"]}
        points = {length: mean_over_seeds(values) for length, values in each.items()}
        if len(points) > 1:
            curves[name] = Curve(points, seeds={at: values for at, values in each.items() if len(values) > 1})
    unit = (
        "share of right tokens" if rows["measure"].iloc[0] == "token_accuracy" else "share of right answers"
    )
    lengths = sorted({*rows["length"]})
    known = {*map(str, lengths)} <= floors.keys()
    floor = {length: max(floors[str(length)].values()) for length in lengths} if known else {}
    return StudyPanel(title, unit, trained, curves, floor, subject, rate=True)


def change_panel(
    title: str,
    unit: str,
    trained: int,
    losses: dict[str, dict[int, UnitLosses]],
    subject: Sequence[str] = (),
    against: str = "",
) -> StudyPanel:
    """The paired change of the loss from the trained length: from each encoding's own loss, or from that of
    one (`against`). The loss at the trained length follows the name."""
    curves = {}
    for name, own in losses.items():
        first = losses[against or name].get(trained)
        if first and trained in own and len(own) > 1:
            points = {length: one.less(first) for length, one in own.items()}
            curves[name] = Curve(points, number(own[trained].estimate().value))
    whose = f" of {against}" if against else ""
    return StudyPanel(title, f"{unit} more than{whose} at {trained} tokens", trained, curves, subject=subject)
