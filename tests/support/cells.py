"""Cells of a report's summary; None where a value is missing."""

import math

from zoo.comparison.paired import Estimate


def column(panel, label, name="mean"):
    """A column of a curve, by length."""
    own = panel[panel["encoding"] == label].sort_values("length")[name]
    return [None if isinstance(one, float) and math.isnan(one) else one for one in own]


def cell(panel, label, length, name):
    (found,) = column(panel[panel["length"] == length], label, name)
    return found


def notes(panel, label):
    own = panel[(panel["encoding"] == label) & panel["note"].notna()]
    return dict(zip(own["length"], own["note"], strict=True))


def labels(panel):
    return panel["encoding"].unique().tolist()


def apart(panel, label, length):
    """The difference of a curve to the reference."""
    return Estimate(*(cell(panel, label, length, f"difference{end}") for end in ("", "_low", "_high")))


def first(report, *names):
    """Values that all rows of a panel share, of each panel."""
    return [tuple(panel.iloc[0][name] for name in names) for panel in report.panels]
