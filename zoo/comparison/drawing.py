"""A comparison's own curves as `zoo.evaluation.plot` draws them: what the tables have, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.comparison.comparison import Panel
from zoo.comparison.lines import Line
from zoo.comparison.run import Row
from zoo.evaluation import curves
from zoo.evaluation.curves import kind_of


def to_draw(panels: Sequence[Panel], lines: Sequence[Line]) -> list[curves.Panel]:
    """The same panels and curves under the same names, with the rows that they were made from."""
    named = {line.label: line for line in lines}
    return [
        curves.Panel(
            panel.protocol,
            panel.parameters,
            panel.measure,
            tuple(_curve(named[curve.label], panel) for curve in panel.curves),
        )
        for panel in panels
    ]


def _curve(line: Line, panel: Panel) -> curves.Curve:
    rows = [row for rows in line.rows for row in rows if _is_in(row, panel)]
    return curves.Curve(
        line.label, tuple(sorted(rows, key=lambda row: (row["length"], str(row.get("seed")))))
    )


def _is_in(row: Row, panel: Panel) -> bool:
    return kind_of(row) == panel.kind and row["length"] in panel.lengths
