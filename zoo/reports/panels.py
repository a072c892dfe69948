"""From measurements to panels: a curve is the mean over the seeds, on one set of targets."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from zoo.evaluation.measurement import Measurement
from zoo.registry import tasks
from zoo.reports.compared_run import Row, Run
from zoo.reports.report import NOT_EVALUATED, NOT_FINITE, Cost, Curve, Panel, Point
from zoo.reports.series import Series

COUNTS = ("documents", "examples", "tokens")
"""What stands behind a measure: the first of these that every row has."""
MAIN = ("accuracy", "bits_per_byte", "loss_nats")
"""What a panel is about: the first of these that all its rows have, else the first measure by name."""
BUSY_FROM = 0.2
"""The share of the processors that other processes use, from which on a speed is marked."""


def panels(series: Sequence[Series]) -> tuple[Panel, ...]:
    """A panel for each kind of measurement of which some number is finite; where there is none such, those
    with no number."""
    measurements = {one.kind: one for own in series for run in own.runs for one in run.measurements}
    made = [
        panel
        for kind in sorted(measurements, key=_place)
        if (panel := _panel(measurements[kind], series)) is not None
    ]
    return tuple(panel for panel in made if any(curve.points for curve in panel.curves)) or tuple(made)


def ordered(panels: Sequence[Panel]) -> tuple[Panel, ...]:
    """The best curve at `Panel.decisive` of the first panel first; every panel has its order."""
    order: dict[str, int] = {}
    for panel in panels:
        for curve in sorted(panel.curves, key=lambda curve, panel=panel: _rank(curve, panel)):
            order.setdefault(curve.label, len(order))
    return tuple(
        replace(panel, curves=tuple(sorted(panel.curves, key=lambda curve: order[curve.label])))
        for panel in panels
    )


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


def _rank(curve: Curve, panel: Panel) -> tuple:
    """By the decisive length, then from the longest on; curves without a value come last."""
    sign = 1 if panel.lower_is_better else -1
    means = [curve.mean[panel.lengths.index(panel.decisive)], *reversed(curve.mean)]
    values = [(mean is None, sign * mean if mean is not None else 0.0) for mean in means]
    return values, curve.label


def _panel(example: Measurement, series: Sequence[Series]) -> Panel | None:
    here = {own.label: own.rows_of(example.kind) for own in series}
    measured = [row for runs in here.values() for rows in runs for row in rows if "note" not in row]
    measure = main_measure(measured)
    if measure is None:
        return None
    # A length at which there are only notes is no column: a caveat has it.
    lengths = tuple(sorted({row["length"] for row in measured}))
    counted = next((count for count in COUNTS if all(count in row for row in measured)), "")
    return Panel(
        kind=example.kind,
        protocol=example.protocol,
        parameters=json.loads(example.kind[1]),
        measure=measure,
        lower_is_better=not example.higher_is_better,
        lengths=lengths,
        curves=tuple(
            _curve(own, here[own.label], lengths, measure, counted) for own in series if any(here[own.label])
        ),
        axis=example.axis,
        explanation=example.explanation,
        counted=counted,
    )


def main_measure(rows: Sequence[Row]) -> str | None:
    """What a panel of some measured rows is about; None where they have nothing in common."""
    named = [name.removesuffix("_low") for row in rows for name in row if name.endswith("_low")]
    known = [name for name in dict.fromkeys((*MAIN, *named)) if rows and all(name in row for row in rows)]
    # A target of no bytes has no bits per byte, and a loss all the same.
    finite = (name for name in known if any(row[name] is not None for row in rows))
    return next(finite, known[0] if known else None)


def _curve(
    own: Series, rows: Sequence[Sequence[Row]], lengths: tuple[int, ...], measure: str, counted: str
) -> Curve:
    points, cells, notes, speed, memory = [], [], {}, [], []
    for length in lengths:
        at = [(run, row_at(of_run, length)) for run, of_run in zip(own.runs, rows, strict=True)]
        cell, note = _cell(at, measure, counted)
        cells.append(cell)
        if note:
            notes[length] = note
        there = [(run, row) for run, row in at if row is not None]
        points += [Point(run.seed, length, row[measure]) for run, row in there if is_measured(row, measure)]
        speed.append(_mean(row.get("tokens_per_second") for _, row in there))
        memory.append(_mean(row.get("peak_memory_mb") for _, row in there))
    mean, sd, measured, counts = zip(*cells, strict=True)
    # The intervals are over what all curves have: `zoo.reports.ranking` fills them in.
    low = high = (None,) * len(lengths)
    return Curve(
        own.label, tuple(run.path for run in own.runs), lengths, mean, low, high, len(own.runs),
        tuple(points), notes, sd, measured, counts, tuple(speed), tuple(memory),
        min(row["train_length"] for of_run in rows for row in of_run),
    )  # fmt: skip


def row_at(rows: Sequence[Row], length: int) -> Row | None:
    """What a run has at a length; of one window that could not be read, that note at every bin of it."""
    own = next((row for row in rows if row["length"] == length), None)
    return rows[0] if own is None and is_unread_window(rows) else own


def is_unread_window(rows: Sequence[Row]) -> bool:
    """Whether rows are nothing but the note of one window, which stands for all of its bins."""
    return any("window" in row["parameters"] for row in rows) and all("note" in row for row in rows)


def _cell(at: Sequence[tuple[Run, Row | None]], measure: str, counted: str) -> tuple[tuple, str | None]:
    """Mean, sd, seeds measured and their count at one length; and what there is to say of it."""
    why = [_why(row, measure) for _, row in at]
    rows = [row for (_, row), reason in zip(at, why, strict=True) if row is not None and reason is None]
    note = _note([(run.seed, reason) for (run, _), reason in zip(at, why, strict=True)])
    # A mean that leaves out the seed that failed would tell of a success.
    if not rows or NOT_FINITE in why:
        return (None, None, len(rows), None), note
    values = [row[measure] for row in rows]
    mean, sd = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
    counts = [row[counted] for row in rows if counted and row[counted] is not None]
    return (mean, sd, len(rows), max(counts, default=None)), note


def is_measured(row: Row | None, measure: str) -> bool:
    """Whether there is a row with a finite value."""
    return _why(row, measure) is None


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
    if not known:
        return None
    if len(known) == 1 and all(reason is not None for _, reason in reasons):
        return next(iter(known))
    parts = []
    for reason in known:
        seeds = [str(seed) for seed, own in reasons if own == reason]
        parts.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}: {reason}")
    return "; ".join(parts)


def costs(series: Sequence[Series], panels: Sequence[Panel]) -> tuple[Cost, ...]:
    """What each curve costs, in the order of the curves."""
    named, first = {one.label: one for one in series}, {curve.label: curve for curve in panels[0].curves}
    speeds = [curve.tokens_per_second for curve in first.values() if any(curve.tokens_per_second)]
    common = [index for index in range(len(panels[0].lengths)) if all(speed[index] for speed in speeds)]
    at = max(common, default=None) if speeds else None
    length = panels[0].lengths[at] if at is not None else None
    made = []
    for label in dict.fromkeys(curve.label for panel in panels for curve in panel.curves):
        own, curve = named[label], first.get(label) if at is not None else None
        rows = [row for of_run in own.rows_of(panels[0].kind) for row in of_run if row["length"] == length]
        made.append(
            Cost(
                label=label,
                added_parameters=_parameters(own, "positional"),
                parameters=_parameters(own, "total"),
                training_tokens_per_second=_mean(run.speed for run in own.runs),
                evaluation_tokens_per_second=curve and curve.tokens_per_second[at],
                evaluation_length=length,
                peak_memory_mb=curve and curve.peak_memory_mb[at],
                busy=any(map(is_busy, rows)),
            )
        )
    return tuple(made)


def is_busy(row: Row) -> bool:
    """Whether other processes used much of the machine while a row was measured."""
    return (row.get("others_cpu") or 0.0) >= BUSY_FROM


def _parameters(own: Series, kind: str) -> int:
    counts = [(run.card.get("parameters") or {}).get(kind) for run in own.runs]
    return max((count for count in counts if isinstance(count, int)), default=0)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
