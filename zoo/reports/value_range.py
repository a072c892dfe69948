"""From where to where a panel is drawn, in pictures and on the page alike: a curve that failed is cut off."""

from __future__ import annotations

from zoo.reports.report import Panel

HEIGHT_OF_FAILURE = 1.5
"""A loss this far above the best one (nats) is cut off; how a failed curve fails is no news."""
TIMES_THE_BEST = 1.5
"""The same for bits per byte, as a factor."""
RATE = (-0.03, 1.03)
"""Accuracies are drawn from none to all."""


def room_for_failures(panel: Panel, differences: bool = False) -> float | None:
    """How far above the best value, or above the reference, is still drawn; None: all is."""
    values = [mean for curve in panel.curves for mean in curve.mean if mean is not None]
    if not panel.lower_is_better or not values:
        return None
    room = HEIGHT_OF_FAILURE if panel.measure == "loss_nats" else min(values) * (TIMES_THE_BEST - 1)
    return room / (3 if differences else 1)  # they are there to tell apart what is close


def value_range(panel: Panel, differences: bool = False) -> tuple[float, float]:
    """Bottom and top of a panel, or of its differences to the reference."""
    if not panel.lower_is_better and not differences:
        return RATE
    room = room_for_failures(panel, differences)
    if differences:
        found = [
            one
            for curve in panel.curves
            for length in panel.lengths
            if (one := panel.between(length, curve.label, panel.reference)) is not None
        ]
        means, best = [0.0, *(one.value for one in found)], 0.0
        ends = [end for one in found for end in (one.low, one.high) if end is not None]
    else:
        means = [mean for curve in panel.curves for mean in curve.mean if mean is not None]
        best = min(means, default=0.0)
        means += [point.value for curve in panel.curves for point in curve.points]
        ends = [end for curve in panel.curves for end in (*curve.low, *curve.high) if end is not None]
    if room is None:
        bottom, top, cut = min([*means, *ends]), max([*means, *ends]), False
    else:
        limit = best + room
        kept = [value for value in means if value <= limit] or [best]
        # Of a few documents an interval may be wider than the picture is worth.
        bottom = max(min([*kept, *ends]), min(kept) - room)
        top, cut = max([*kept, *(end for end in ends if end <= limit)]), max(means) > limit
    margin = max(0.05 * (top - bottom), 0.004 * abs(best), 1e-6)
    return bottom - margin, top + (2.5 if cut else 1) * margin
