"""What the page's script draws, as plain data: a panel's values, and the differences to its reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from zoo.figures.style import Style
from zoo.reports.cutoff import RATE, room_for_failures
from zoo.reports.formatting import display_name, number, protocol_text, signed, small
from zoo.reports.report import Curve, Panel
from zoo.reports.tables import difference_text, interval_text, rank_text


def values_plot(panel: Panel, looks: Mapping[str, Style], refused: bool) -> dict[str, Any]:
    """The values of a panel; `refused` where its runs are not comparable."""
    measure = display_name(panel.measure)
    curves = []
    for curve in panel.curves:
        curves.append(_curve(curve, looks, [_value(curve, panel, n) for n in range(len(panel.lengths))]))
        # Of one seed the mean is the point.
        points = [point for point in curve.points if curve.seeds > 1 and math.isfinite(point.value)]
        curves[-1]["seeds"] = [{"length": point.length, "value": point.value} for point in points]
    return _plot(panel, measure, refused, curves) | {
        "label": f"{measure.capitalize()} by {panel.axis}, {panel.protocol}: {len(curves)} lines",
        "range": None if panel.lower_is_better else RATE,
    }


def differences_plot(panel: Panel, looks: Mapping[str, Style], refused: bool) -> dict[str, Any] | None:
    """The differences of a panel's curves to its reference; None of a single curve."""
    if not panel.pairs:
        return None
    measure = f"{display_name(panel.measure)} less that of {panel.reference}"
    curves = [
        _curve(curve, looks, [_difference(curve, panel, length) for length in panel.lengths])
        for curve in panel.curves
        if curve.label != panel.reference
    ]
    return _plot(panel, measure, refused, curves) | {
        "label": f"{measure}, by {panel.axis}, {protocol_text(panel.protocol, panel.parameters)}",
        "zero": looks[panel.reference].classes,
        "room": room_for_failures(panel, differences=True),
    }


def _plot(panel: Panel, measure: str, refused: bool, curves: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "measure": measure, "axis": panel.axis, "trained": list(panel.train_lengths),
        "lengths": list(panel.lengths), "range": None, "room": room_for_failures(panel), "zero": None,
        "refused": refused, "curves": curves,
    }  # fmt: skip


def _curve(curve: Curve, looks: Mapping[str, Style], marks: list[dict[str, Any]]) -> dict[str, Any]:
    for length, mark in zip(curve.lengths, marks, strict=True):
        mark |= {"length": length, "note": curve.notes.get(length)}
    return {
        "index": list(looks).index(curve.label),
        "label": curve.label,
        "classes": looks[curve.label].classes,
        "mark": f"mark-{looks[curve.label].mark}",
        "marks": marks,
        "seeds": [],
    }


def _value(curve: Curve, panel: Panel, index: int) -> dict[str, Any]:
    return {
        "mean": _finite(curve.mean[index]),
        "low": _finite(curve.low[index]),
        "high": _finite(curve.high[index]),
        "failed": curve.failed(index),
        "value": number(curve.mean[index]),
        "spread": interval_text(curve, index),
        "details": details(curve, panel, index),
    }


def _difference(curve: Curve, panel: Panel, length: int) -> dict[str, Any]:
    one = panel.between(length, curve.label, panel.reference)
    if one is None:
        return {
            "mean": None,
            "low": None,
            "high": None,
            "failed": False,
            "value": number(None),
            "details": [],
        }
    text = signed(one.value)
    return {
        "mean": _finite(one.value),
        "low": _finite(one.low),
        "high": _finite(one.high),
        "failed": False,
        "value": text,
        "spread": difference_text(one).removeprefix(text).strip(" ()") + (" tied" if one.sign == 0 else ""),
        "details": [("interval", panel.interval if one.sign is not None else f"none: {one.why}")],
    }


def details(curve: Curve, panel: Panel, index: int) -> list[tuple[str, str]]:
    """What is shown of a curve at one of its lengths besides the value and its interval: names and texts."""
    length = curve.lengths[index]
    points = [point for point in curve.points if point.length == length]
    rows = [("trained at", str(curve.train_length))] if len(panel.train_lengths) > 1 else []
    if panel.rank(curve.label, length) is not None:
        rows.append(("rank", rank_text(panel, curve.label, length)))
    one = panel.between(length, curve.label, panel.reference)
    if one is not None:
        rows.append((f"less {panel.reference}", difference_text(one)))
    rows.append(("seeds", str(curve.measured[index])))
    if len(points) > 1:
        rows += [(f"seed {point.seed}", number(point.value)) for point in points]
        rows += [("standard deviation", small(curve.sd[index]))] if curve.sd[index] is not None else []
    if panel.counted and curve.counts[index] is not None:
        rows.append((display_name(panel.counted), f"{curve.counts[index]:,}"))
    return rows


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
