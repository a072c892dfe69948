"""Which part of a panel's axis is drawn: where a curve that failed is cut off."""

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
