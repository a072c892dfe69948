"""From measurements to panels: a curve is the mean over the seeds, on one set of targets; with the
interval of every value, and the differences to a reference by which curves are ranked."""

from __future__ import annotations

import difflib
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from zoo.errors import InputError
from zoo.evaluation.interval import UNKNOWN
from zoo.evaluation.measurement import Measurement
from zoo.registry import tasks
from zoo.reports.compared_run import Row
from zoo.reports.intervals import basis_of, difference, sample
from zoo.reports.report import NOT_EVALUATED, NOT_FINITE, Cost, Curve, Panel, Point
from zoo.reports.series import Series

COUNTS = ("documents", "examples", "tokens")
"""What stands behind a measure: the first of these that every row has."""
MAIN = ("accuracy", "bits_per_byte", "loss_nats")
"""What a panel is about: the first of these that all its rows have, else the first measure by name."""
MEASURES = (
    "accuracy", "token_accuracy", "value_accuracy", "accuracy_within", "accuracy_beyond",
    "bits_per_byte", "loss_nats", "perplexity", "word_perplexity",
)  # fmt: skip


def panels(series: Sequence[Series]) -> tuple[Panel, ...]:
    """A panel for each kind of measurement of which some number is finite; where there is none such, those
    with no number."""
    measurements = {one.kind: one for own in series for run in own.runs for one in run.measurements}
    made = [_panel(measurements[kind], series) for kind in sorted(measurements, key=_place)]
    there = tuple(panel for panel in made if panel is not None)
    return tuple(panel for panel in there if any(curve.points for curve in panel.curves)) or there


def with_rivals(panels: Sequence[Panel]) -> tuple[tuple[Panel, ...], tuple[Panel, ...]]:
    """The panels that compare, and those of one curve alone where others have its protocol in another way."""

    def compares(panel: Panel) -> bool:
        # What was measured and is not finite is a result too.
        return sum(any(curve.points) or any(map(curve.failed, range(len(panel.lengths))))
                   for curve in panel.curves) > 1  # fmt: skip

    several = {panel.protocol for panel in panels if compares(panel)}
    kept = tuple(panel for panel in panels if compares(panel) or panel.protocol not in several)
    return kept, tuple(panel for panel in panels if panel not in kept)


def _place(kind: tuple[str, str, str]) -> tuple:
    known = [protocol for task in tasks.all().values() for protocol in task.protocols]
    return known.index(kind[0]) if kind[0] in known else len(known), kind


def _panel(example: Measurement, series: Sequence[Series]) -> Panel | None:
    rows = [row for own in series for row in own.rows_of(example.kind)]
    measured = [row for row in rows if "note" not in row]
    measure = _main_measure(measured)
    if measure is None:
        return None
    # A length at which there are only notes is no column: a caveat has it.
    lengths = tuple(sorted({row["length"] for row in measured}))
    counted = next((count for count in COUNTS if all(count in row for row in measured)), "")
    curves = [_curve(own, example.kind, lengths, measure, counted) for own in series]
    return Panel(
        kind=example.kind,
        protocol=example.protocol,
        parameters=json.loads(example.kind[1]),
        measure=measure,
        lower_is_better=not example.higher_is_better,
        lengths=lengths,
        curves=tuple(curve for curve in curves if curve is not None),
        axis=example.axis,
        explanation=example.explanation,
        counted=counted,
    )


def _main_measure(rows: Sequence[Row]) -> str | None:
    """What a panel of some measured rows is about; None where they have nothing in common."""
    named = [name.removesuffix("_low") for row in rows for name in row if name.endswith("_low")]
    known = [name for name in dict.fromkeys((*MAIN, *named)) if rows and all(name in row for row in rows)]
    # A target of no bytes has no bits per byte, and a loss all the same.
    finite = (name for name in known if any(row[name] is not None for row in rows))
    return next(finite, known[0] if known else None)


def _curve(
    own: Series, kind: tuple[str, str, str], lengths: tuple[int, ...], measure: str, counted: str
) -> Curve | None:
    rows = own.rows_of(kind)
    if not rows:
        return None
    points, notes, columns = [], {}, []
    for length in lengths:
        at = _rows_at(own, kind, length)
        why = [_why(row, measure) for _, row in at]
        if note := _note([(seed, reason) for (seed, _), reason in zip(at, why, strict=True)]):
            notes[length] = note
        measured = [(seed, row) for seed, row in at if _why(row, measure) is None]
        points += [Point(seed, length, row[measure]) for seed, row in measured]
        values = [row[measure] for _, row in measured]
        counts = [row[counted] for _, row in measured if counted and row[counted] is not None]
        # A mean that leaves out the seed that failed would tell of a success.
        failed = NOT_FINITE in why
        there = [row for _, row in at if row is not None]
        columns.append({
            "mean": None if failed else _mean(values),
            "sd": None if failed or len(values) < 2 else statistics.stdev(values),
            "measured": len(values),
            "counts": None if failed else max(counts, default=None),
            "tokens_per_second": _mean(row.get("tokens_per_second") for row in there),
            "peak_memory_mb": _mean(row.get("peak_memory_mb") for row in there),
            # The intervals are over what all curves have: `ranked` fills them in.
            "low": None,
            "high": None,
            **{name: _mean(row.get(name) for row in there) for name in MEASURES if name != measure},
        })  # fmt: skip
    made = {name: tuple(column[name] for column in columns) for name in columns[0]}
    others = {name: made.pop(name) for name in MEASURES if name != measure}
    return Curve(
        label=own.label, runs=tuple(run.path for run in own.runs), lengths=lengths, seeds=len(own.runs),
        points=tuple(points), notes=notes, train_length=min(row["train_length"] for row in rows),
        others={name: values for name, values in others.items() if any(values)}, **made,
    )  # fmt: skip


def _rows_at(own: Series, kind: tuple[str, str, str], length: int) -> list[tuple[int, Row | None]]:
    """What each seed has at a length; of one window that could not be read, that note at every bin of it."""
    found = []
    for run in own.runs:
        rows = run.of(kind)
        row = next((row for row in rows if row["length"] == length), None)
        found.append((run.seed, rows[0] if row is None and is_unread_window(rows) else row))
    return found


def is_unread_window(rows: Sequence[Row]) -> bool:
    """Whether rows are nothing but the note of one window, which stands for all of its bins."""
    return any("window" in row["parameters"] for row in rows) and all("note" in row for row in rows)


def _why(row: Row | None, measure: str) -> str | None:
    """Why there is no value; None where there is one."""
    if row is None:
        return NOT_EVALUATED
    if "note" in row:
        return str(row["note"])
    value = row[measure]
    return None if value is not None and math.isfinite(value) else NOT_FINITE


def _note(reasons: Sequence[tuple[int, str | None]]) -> str | None:
    known = dict.fromkeys(reason for _, reason in reasons if reason is not None)
    if len(known) == 1 and all(reason is not None for _, reason in reasons):
        return next(iter(known))
    parts = []
    for reason in known:
        seeds = [str(seed) for seed, own in reasons if own == reason]
        parts.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}: {reason}")
    return "; ".join(parts) or None


def ranked(
    panels: Sequence[Panel], series: Sequence[Series], reference: str | None = None
) -> tuple[Panel, ...]:
    """The panels with the best curve first, with their intervals, and with differences to a reference.

    The order is that at `Panel.decisive` of the first panel. At each length a curve's rank is one more than
    the number of curves that are better than it beyond doubt: the 95 % interval of the paired difference
    leaves out zero. Curves that are not told apart so are tied.

    Args:
        reference: the label of the curve that differences are to; by default the best at the trained length
            of the first panel. A panel without it has the best of its own.

    Raises:
        InputError: no curve has that label.
    """
    panels = _ordered(panels)
    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    if reference is not None and reference not in labels:
        near = difflib.get_close_matches(reference, labels, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(labels)}"
        raise InputError(f"--reference: no curve is called {reference!r}; {hint}")
    named = {one.label: one for one in series}
    samples = {}
    for number, panel in enumerate(panels):
        for curve in panel.curves:
            for length, mean in zip(panel.lengths, curve.mean, strict=True):
                if mean is not None:
                    rows = _rows_at(named[curve.label], panel.kind, length)
                    measured = {seed: row for seed, row in rows if _why(row, panel.measure) is None}
                    samples[number, length, curve.label] = sample(measured, panel.measure)
    basis = basis_of([*samples.values()])
    chosen = reference or best_at(panels[0], panels[0].trained)
    made = []
    for number, panel in enumerate(panels):
        pairs, curves = {}, []
        for length in panel.lengths:
            there = [one.label for one in panel.curves if (number, length, one.label) in samples]
            for one, other in combinations(there, 2):
                own, theirs = samples[number, length, one], samples[number, length, other]
                pairs[length, one, other] = difference(own, theirs, basis)
        for curve in panel.curves:
            found = [samples.get((number, length, curve.label)) for length in panel.lengths]
            low, high = zip(*(one.interval(basis) if one else UNKNOWN for one in found), strict=True)
            curves.append(replace(curve, low=low, high=high))
        units = dict.fromkeys(one.unit for (of, *_), one in samples.items() if of == number)
        made.append(replace(
            panel, curves=tuple(curves), pairs=pairs,
            reference=chosen if chosen in [one.label for one in curves] else best_at(panel, panel.trained),
            interval=basis.named("s or ".join(units) or "document"),
            averaged=not basis.seeds and any(curve.seeds > 1 for curve in curves),
        ))  # fmt: skip
    return tuple(made)


def _ordered(panels: Sequence[Panel]) -> list[Panel]:
    order: dict[str, int] = {}
    for panel in panels:
        sign, at = 1 if panel.lower_is_better else -1, panel.lengths.index(panel.decisive)
        keys = {}
        for curve in panel.curves:
            # By the decisive length, then from the longest on; curves without a value come last.
            means = [curve.mean[at], *reversed(curve.mean)]
            keys[curve.label] = [(mean is None, sign * (mean or 0.0)) for mean in means], curve.label
        for label in sorted(keys, key=keys.__getitem__):
            order.setdefault(label, len(order))
    return [
        replace(panel, curves=tuple(sorted(panel.curves, key=lambda curve: order[curve.label])))
        for panel in panels
    ]


def best_at(panel: Panel, length: int) -> str:
    """The label of the best curve at a length; of equals the first."""
    index = panel.lengths.index(length)
    there = [curve for curve in panel.curves if curve.mean[index] is not None] or list(panel.curves)
    sign = 1 if panel.lower_is_better else -1
    return min(there, key=lambda curve: sign * (curve.mean[index] or 0.0)).label


def costs(series: Sequence[Series], panels: Sequence[Panel]) -> tuple[Cost, ...]:
    """What each curve costs, in the order of the curves."""
    named, panel = {one.label: one for one in series}, panels[0]
    first = {curve.label: curve for curve in panel.curves}
    speeds = [curve.tokens_per_second for curve in first.values() if any(curve.tokens_per_second)]
    common = [index for index in range(len(panel.lengths)) if all(speed[index] for speed in speeds)]
    at = max(common, default=None) if speeds else None
    length = None if at is None else panel.lengths[at]
    made = []
    for label in dict.fromkeys(curve.label for panel in panels for curve in panel.curves):
        runs, curve = named[label].runs, None if at is None else first.get(label)
        parameters = [run.card["parameters"] for run in runs]
        made.append(Cost(
            label=label,
            added_parameters=max(counts.get("positional", 0) for counts in parameters),
            parameters=max(counts.get("total", 0) for counts in parameters),
            training_tokens_per_second=_mean(run.speed for run in runs),
            evaluation_tokens_per_second=curve and curve.tokens_per_second[at],
            evaluation_length=length,
            peak_memory_mb=curve and curve.peak_memory_mb[at],
        ))  # fmt: skip
    return tuple(made)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
