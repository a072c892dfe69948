"""The panels of a study: shares of right answers with intervals over seeds, or paired changes of the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from board.boards import Boards
from board.figures import Curve, StudyPanel
from board.measured import Measured
from board.pairs import UnitLosses, mean_over_seeds
from zoo.comparison.formatting import number

UNITS = {"bits_per_byte": "bits per byte", "loss_nats": "nats"}
DRAWN = ("nonoverlapping", "sliding")
"""The protocols of text in figures if a study has them: `fixed_targets` may have one document, and `repeats`
has no lengths."""


def study_panels(one: Measured, boards: Boards) -> list[StudyPanel]:
    """The panels of a study for the most used encodings and the best ones."""
    shown, name = boards.shown(one), one.study.title
    if one.is_task:
        rows = one.rows[(one.rows["measure"] == one.measure) & one.rows["name"].isin(shown)]
        return [task_panel(name, rows, one.trained, boards.floors[name][one.measure])]
    drawn = [protocol for protocol in one.study.protocols if protocol in DRAWN] or one.study.protocols[:1]
    return [
        change_panel(
            f"{name}, {protocol}", UNITS[one.measure], one.trained,
            {encoding: one.losses(encoding, protocol) for encoding in shown},
        )
        for protocol in drawn
    ]  # fmt: skip


def task_panel(
    title: str,
    rows: pd.DataFrame,
    trained: int,
    floors: Mapping[str, Mapping[str, float]],
    subject: Sequence[str] = (),
) -> StudyPanel:
    """The shares of right tokens or answers with 95 % intervals over seeds, of the rows of one measure."""
    rows = rows[rows["value"].notna()]
    curves = {
        name: Curve({int(length): mean_over_seeds(each["value"]) for length, each in own.groupby("length")})
        for name, own in rows.groupby("name", sort=False)
    }
    unit = (
        "share of right tokens" if rows["measure"].iloc[0] == "token_accuracy" else "share of right answers"
    )
    lengths = sorted({*rows["length"]})
    floor = {length: max(floors[str(length)].values()) for length in lengths if str(length) in floors}
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
        if first and trained in own:
            points = {length: one.less(first) for length, one in own.items()}
            curves[name] = Curve(points, number(own[trained].estimate().value))
    whose = f" of {against}" if against else ""
    return StudyPanel(title, f"{unit} more than{whose} at {trained} tokens", trained, curves, subject=subject)
