"""What the page's script draws of a panel, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from zoo.evaluation.exports import number
from zoo.evaluation.plot import HEIGHT_OF_FAILURE, TIMES_THE_BEST
from zoo.reports.panels import NOT_FINITE
from zoo.reports.report import Curve, Panel
from zoo.reports.style import look
from zoo.reports.tables import DASH, against, difference_text, rank_text, small, spread, words

WHOLE = (-0.02, 1.02)
"""Accuracies are drawn from none to all."""


def drawn(number_of_panel: int, panel: Panel, indices: Mapping[str, int], refused: bool) -> dict[str, Any]:
    """A panel as the script reads it; `refused` where its runs are not comparable."""
    measure, protocol = words(panel.measure), panel.protocol.replace("_", " ")
    return {
        "index": number_of_panel,
        "measure": measure,
        "label": f"{measure.capitalize()} by {against(panel)}, {protocol}: {len(panel.curves)} lines",
        "against": against(panel),
        "trained": list(panel.train_lengths),
        "lengths": list(panel.lengths),
        "whole": WHOLE if "accuracy" in panel.measure else None,
        "cut": _cut(panel),
        "refused": refused,
        "curves": [_curve(curve, panel, indices[curve.label]) for curve in panel.curves],
    }


def _cut(panel: Panel) -> dict[str, float] | None:
    """Where a failed curve leaves the plot: so many times the best value, plus so much; as in pictures."""
    if not panel.lower_is_better:
        return None
    if panel.measure == "loss_nats":
        return {"times": 1, "plus": HEIGHT_OF_FAILURE}
    return {"times": TIMES_THE_BEST, "plus": 0}


def _curve(curve: Curve, panel: Panel, index: int) -> dict[str, Any]:
    return {
        "index": index,
        "label": curve.label,
        "classes": look(index).classes,
        "mark": look(index).mark,
        "marks": [
            {
                "length": length,
                "mean": _finite(curve.mean[place]),
                "low": _finite(curve.low[place]),
                "high": _finite(curve.high[place]),
                "failed": curve.mean[place] is None and NOT_FINITE in curve.notes.get(length, ""),
                "value": _text(curve.mean[place]),
                "told": told(curve, panel, place),
            }
            for place, length in enumerate(curve.lengths)
        ],
        # Of one seed the mean is the point.
        "seeds": [
            {"length": point.length, "value": point.value}
            for point in curve.points
            if curve.seeds > 1 and math.isfinite(point.value)
        ],
    }


def told(curve: Curve, panel: Panel, place: int) -> list[tuple[str, str]]:
    """What is told of a curve at one of its lengths: names and values."""
    length = curve.lengths[place]
    ratio = length / curve.train_length
    points = [point for point in curve.points if point.length == length]
    rows = [(against(panel), f"{length} ({'trained' if ratio == 1 else f'{ratio:g}× trained'})")]
    beside = spread(curve, place)
    rows.append((words(panel.measure), _text(curve.mean[place])))
    rows += [(panel.interval, beside)] if beside else []
    rank = panel.rank(curve.label, length)
    rows += [("rank", rank_text(panel, curve.label, length))] if rank is not None else []
    one = panel.between(length, curve.label, panel.reference)
    if one is not None:
        rows.append((f"less {panel.reference}", difference_text(one)))
    rows.append(("seeds", str(curve.measured[place])))
    if len(points) > 1:
        rows += [(f"seed {point.seed}", number(point.value)) for point in points]
        rows += [("standard deviation", small(curve.sd[place]))] if curve.sd[place] is not None else []
    if panel.counted and curve.counts[place] is not None:
        rows.append((words(panel.counted), f"{curve.counts[place]:,}"))
    if length in curve.notes:
        rows.append(("note", curve.notes[length]))
    return rows


def _text(value: float | None) -> str:
    return DASH if value is None else number(value)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
