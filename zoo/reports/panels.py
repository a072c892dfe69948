"""From the rows of runs to curves: the mean over the seeds, its spread, and what the encodings cost."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from zoo.evaluation.curves import MAIN, kind_of
from zoo.recipe.diff import flatten
from zoo.registry import tasks
from zoo.reports.compared_run import Row, Run
from zoo.reports.report import Cost, Curve, Panel, Point
from zoo.reports.series import Line

HIGHER_IS_BETTER = ("accuracy",)
COUNTS = ("documents", "examples", "tokens")
"""What stands behind a measure: the first of these that every row has."""
NOT_FINITE, NOT_EVALUATED = "not finite", "not evaluated"


def panels(lines: Sequence[Line]) -> tuple[Panel, ...]:
    """A panel for each protocol and its parameters. One by which nothing could be measured has none."""
    kinds = {kind_of(row) for line in lines for rows in line.rows for row in rows}
    made = [_panel(protocol, parameters, lines) for protocol, parameters in sorted(kinds, key=_place)]
    return tuple(panel for panel in made if panel is not None)


def with_numbers(panels: Sequence[Panel]) -> tuple[Panel, ...]:
    """The panels in which some number is finite; all of them where none is in any."""
    kept = tuple(panel for panel in panels if any(curve.points for curve in panel.curves))
    return kept or tuple(panels)


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


def parted(panels: Sequence[Panel], lines: Sequence[Line]) -> tuple[tuple[Panel, ...], tuple[Panel, ...]]:
    """The panels that compare, and those of one curve alone where others have its protocol in another way."""
    # What was measured and is not finite is a result too.
    rows = [(line.label, row) for line in lines for rows in line.rows for row in rows]
    measured = {(label, kind_of(row)) for label, row in rows if "note" not in row}

    def compares(panel: Panel) -> bool:
        return sum((curve.label, panel.kind) in measured for curve in panel.curves) > 1

    several = {panel.protocol for panel in panels if compares(panel)}
    kept = tuple(panel for panel in panels if compares(panel) or panel.protocol not in several)
    return kept, tuple(panel for panel in panels if panel not in kept)


def _place(kind: tuple[str, str]) -> tuple:
    known = [protocol for task in tasks.all().values() for protocol in task.protocols]
    return known.index(kind[0]) if kind[0] in known else len(known), kind


def _rank(curve: Curve, panel: Panel) -> tuple:
    """By the decisive length, then from the longest on; curves without a value come last."""
    sign = 1 if panel.lower_is_better else -1
    means = [curve.mean[panel.lengths.index(panel.decisive)], *reversed(curve.mean)]
    values = [(mean is None, sign * mean if mean is not None else 0.0) for mean in means]
    return values, curve.label


def _panel(protocol: str, parameters: str, lines: Sequence[Line]) -> Panel | None:
    here = {
        line.label: [[row for row in rows if kind_of(row) == (protocol, parameters)] for rows in line.rows]
        for line in lines
    }
    every = [row for runs in here.values() for rows in runs for row in rows]
    measured = [row for row in every if "note" not in row]
    in_all = [measure for measure in MAIN if measured and all(measure in row for row in measured)]
    if not in_all:
        return None
    # A target of no bytes has no bits per byte, and a loss all the same.
    measure = next((m for m in in_all if any(row[m] is not None for row in measured)), in_all[0])
    # A length at which there are only notes is no column: a remark has it.
    lengths = tuple(sorted({row["length"] for row in measured}))
    counted = next((count for count in COUNTS if all(count in row for row in measured)), "")
    return Panel(
        protocol=protocol,
        parameters=json.loads(parameters),
        measure=measure,
        lower_is_better=measure not in HIGHER_IS_BETTER,
        lengths=lengths,
        curves=tuple(
            _curve(line, here[line.label], lengths, measure, counted)
            for line in lines
            if any(here[line.label])
        ),
        counted=counted,
    )


def _curve(
    line: Line, rows: Sequence[Sequence[Row]], lengths: tuple[int, ...], measure: str, counted: str
) -> Curve:
    points, cells, notes, speed, memory = [], [], {}, [], []
    for length in lengths:
        at = [(run, row_at(own, length)) for run, own in zip(line.runs, rows, strict=True)]
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
        line.label, tuple(run.path for run in line.runs), lengths, mean, low, high, len(line.runs),
        tuple(points), notes, sd, measured, counts, tuple(speed), tuple(memory),
        min(row["train_length"] for own in rows for row in own),
    )  # fmt: skip


def row_at(rows: Sequence[Row], length: int) -> Row | None:
    """What a run has at a length; of one window that could not be read, that note at every bin of it."""
    own = next((row for row in rows if row["length"] == length), None)
    if own is None and is_noted_whole(rows):
        return rows[0]
    return own


def is_noted_whole(rows: Sequence[Row]) -> bool:
    """Whether rows are nothing but the note of one window, which stands for all of its bins."""
    return any("window" in (row.get("parameters") or {}) for row in rows) and all(
        "note" in row for row in rows
    )


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
    told = []
    for reason in known:
        seeds = [str(seed) for seed, own in reasons if own == reason]
        told.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}: {reason}")
    return "; ".join(told)


def costs(lines: Sequence[Line], panels: Sequence[Panel]) -> tuple[Cost, ...]:
    """What each curve costs, in the order of the curves."""
    named, first = {line.label: line for line in lines}, {curve.label: curve for curve in panels[0].curves}
    speeds = [curve.tokens_per_second for curve in first.values() if any(curve.tokens_per_second)]
    common = [index for index in range(len(panels[0].lengths)) if all(speed[index] for speed in speeds)]
    at = max(common, default=None) if speeds else None
    made = []
    for label in dict.fromkeys(curve.label for panel in panels for curve in panel.curves):
        line, curve = named[label], first.get(label) if at is not None else None
        made.append(
            Cost(
                label=label,
                added_parameters=_parameters(line, "positional"),
                parameters=_parameters(line, "total"),
                training_tokens_per_second=_mean(run.speed for run in line.runs),
                evaluation_tokens_per_second=curve and curve.tokens_per_second[at],
                evaluation_length=panels[0].lengths[at] if at is not None else None,
                peak_memory_mb=curve and curve.peak_memory_mb[at],
            )
        )
    return tuple(made)


def _parameters(line: Line, kind: str) -> int:
    counts = [flatten(run.card).get(f"parameters.{kind}") for run in line.runs]
    return max((count for count in counts if isinstance(count, int)), default=0)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
