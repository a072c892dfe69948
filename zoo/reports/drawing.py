"""A comparison's own curves as `zoo.evaluation.plot` draws them: what the tables have, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.evaluation import curves
from zoo.evaluation.curves import kind_of
from zoo.reports.compared_run import Row
from zoo.reports.report import Curve, Panel
from zoo.reports.series import Line
from zoo.reports.tables import spread_text


def to_draw(panels: Sequence[Panel], lines: Sequence[Line]) -> list[curves.Panel]:
    """The same panels and curves under the same names, with the rows that they were made from."""
    named = {line.label: line for line in lines}
    return [
        curves.Panel(
            panel.protocol,
            panel.parameters,
            panel.measure,
            tuple(_curve(curve, named[curve.label], panel) for curve in panel.curves),
            spread_text(panel).removeprefix("(low–high): "),
        )
        for panel in panels
    ]


def _curve(curve: Curve, line: Line, panel: Panel) -> curves.Curve:
    rows = [row for rows in line.rows for row in rows if _is_in(row, panel)]
    ends = {
        length: (low, high)
        for length, low, high in zip(curve.lengths, curve.low, curve.high, strict=True)
        if low is not None and high is not None
    }
    ordered = sorted(rows, key=lambda row: (row["length"], str(row.get("seed"))))
    return curves.Curve(line.label, tuple(ordered), ends)


def _is_in(row: Row, panel: Panel) -> bool:
    return kind_of(row) == panel.kind and row["length"] in panel.lengths
