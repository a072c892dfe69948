"""Who is ahead of whom: the interval of every value, the differences to a reference, and ranks with ties."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from zoo.errors import InputError
from zoo.evaluation.interval import UNKNOWN
from zoo.reports.intervals import Basis, Sample, basis_of, difference, sample, unit_of
from zoo.reports.panels import is_measured, row_at
from zoo.reports.report import Difference, Panel
from zoo.reports.series import Series

Samples = dict[str, list[Sample | None]]
"""Of each curve, by its label, the sample at each length of its panel."""


def ranked(
    panels: Sequence[Panel], series: Sequence[Series], reference: str | None = None
) -> tuple[Panel, ...]:
    """The panels with their intervals, ranks and differences to a reference.

    At each length a curve's rank is one more than the number of curves that are better than it beyond doubt:
    the 95 % interval of the paired difference leaves out zero. Curves that are not told apart so are tied.

    Args:
        panels: ordered, so that the first curve that has the best value is the reference of a tie.
        reference: the label of the curve that differences are to; by default the best at the trained length
            of the first panel. A panel without it has the best of its own.

    Raises:
        InputError: no curve has that label.
    """
    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    if reference is not None and reference not in labels:
        near = difflib.get_close_matches(reference, labels, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(labels)}"
        raise InputError(f"--reference: no curve is called {reference!r}; {hint}")
    named = {line.label: line for line in series}
    samples = [_samples(panel, named) for panel in panels]
    basis = basis_of([one for of in samples for own in of.values() for one in own if one is not None])
    chosen = reference or best_at(panels[0], panels[0].trained)
    return tuple(_panel(panel, own, basis, chosen) for panel, own in zip(panels, samples, strict=True))


def best_at(panel: Panel, length: int) -> str:
    """The label of the best curve at a length; of equals the first."""
    index = panel.lengths.index(length)
    there = [curve for curve in panel.curves if curve.mean[index] is not None] or list(panel.curves)
    sign = 1 if panel.lower_is_better else -1
    return min(there, key=lambda curve: sign * (curve.mean[index] or 0.0)).label


def _samples(panel: Panel, named: Mapping[str, Series]) -> Samples:
    made: Samples = {}
    for curve in panel.curves:
        own_series = named[curve.label]
        rows = own_series.rows_of(panel.kind)
        made[curve.label] = []
        for index, length in enumerate(panel.lengths):
            at = [(run.seed, row_at(own, length)) for run, own in zip(own_series.runs, rows, strict=True)]
            measured = [(seed, row) for seed, row in at if is_measured(row, panel.measure)]
            known = curve.mean[index] is not None
            made[curve.label].append(sample(measured, panel.measure) if known else None)
    return made


def _panel(panel: Panel, samples: Samples, basis: Basis, reference: str) -> Panel:
    if reference not in samples:
        reference = best_at(panel, panel.trained)
    pairs: dict[tuple[int, str, str], Difference] = {}
    for index, length in enumerate(panel.lengths):
        there = {label: own[index] for label, own in samples.items() if own[index] is not None}
        for (label, one), (other_label, other) in combinations(there.items(), 2):
            pairs[length, label, other_label] = difference(one, other, basis)
    made = []
    for curve in panel.curves:
        ends = [UNKNOWN if one is None else one.interval(basis) for one in samples[curve.label]]
        low, high = zip(*ends, strict=True)
        made.append(replace(curve, low=low, high=high))
    return replace(
        panel, curves=tuple(made), pairs=pairs, reference=reference,
        interval=basis.named(unit_of(panel.measure)),
        averaged=not basis.seeds and any(curve.seeds > 1 for curve in panel.curves),
    )  # fmt: skip
