"""A report, and the rows of one run, as CSV: for whoever draws plots or computes of their own."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence

from zoo.errors import printable
from zoo.reports.compared_run import Row
from zoo.reports.panels import MEASURES
from zoo.reports.report import Report

COLUMNS = (
    "encoding", "protocol", "parameters", "length", "train_length", "measure", "mean", "sd", "low", "high",
    "interval", "rank", "reference", "difference", "difference_low", "difference_high",
    "seeds", "measured", "counted", "count", "note", "added_parameters", "parameter_count",
    "training_tokens_per_second", "evaluation_tokens_per_second", "peak_memory_mb", "runs", "comparable",
)  # fmt: skip
FACTS = (
    "run", "encoding", "changed", "checkpoint", "step", "seed", "protocol", "parameters", "length",
    "train_length", "targets", "documents", "documents_left_out", "examples", "seen_in_training",
    "tokens",
)  # fmt: skip


FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes a text for a formula by."""


def as_csv(report: Report) -> str:
    """A line for each curve, length and protocol, with what it cost there.

    `low` and `high` are the ends of the mean's interval, and `interval` says over what; `sd` is the standard
    deviation over seeds. `difference` is the mean less that of `reference` at this length,
    `difference_low` and `difference_high` are the ends of its paired interval; `rank` is 1 + the number of
    encodings that are better beyond the interval of theirs. Texts are made inert for spreadsheets.
    """
    lines: list[list[object]] = []
    costs = {cost.label: cost for cost in report.costs}
    comparable = f"no: {'; '.join(report.differences)}" if report.differences else "yes"
    if report.panels[0].subject != "encoding":
        comparable = f"as {report.panels[0].subject}s, in bits per byte of the same documents"
    for panel in report.panels:
        parameters = json.dumps(panel.parameters, sort_keys=True)
        for curve in panel.curves:
            cost = costs[curve.label]
            for index, length in enumerate(panel.lengths):
                one = panel.between(length, curve.label, panel.reference)
                low = curve.low[index]
                lines.append([
                    curve.label, panel.protocol, parameters, length, curve.train_length, panel.measure,
                    curve.mean[index], curve.sd[index], low, curve.high[index],
                    panel.interval if low is not None else None, panel.rank(curve.label, length),
                    panel.reference if panel.pairs else None,
                    *((one.value, one.low, one.high) if one else (None, None, None)), curve.seeds,
                    curve.measured[index], panel.counted, curve.counts[index], curve.notes.get(length),
                    cost.added_parameters, cost.parameters, cost.training_tokens_per_second,
                    curve.tokens_per_second[index], curve.peak_memory_mb[index], " ".join(curve.runs),
                    comparable,
                ])  # fmt: skip
    return _csv(COLUMNS, lines)


def rows_as_csv(rows: Sequence[Row]) -> str:
    """A line for each row; what is not a number or a text (`changed`, `parameters`) is JSON."""
    there = {column for row in rows for column in row}
    measures = [f"{measure}{end}" for measure in MEASURES for end in ("", "_low", "_high")]
    known = [*FACTS, *measures, "tokens_per_second", "peak_memory_mb"]
    others = sorted(there - {*known, "note"}, key=lambda name: (name.removesuffix("_low"), name))
    columns = [column for column in [*known, *others, "note"] if column in there]
    return _csv(columns, [[row.get(column) for column in columns] for row in rows])


def _csv(columns: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(spreadsheet_safe, line) for line in lines)
    return text.getvalue()


def spreadsheet_safe(value: object) -> object:
    """A value for a CSV file that no spreadsheet takes for a formula and no terminal acts upon.

    Numbers are as they are. A text that begins as a formula does gets an apostrophe before it (OWASP, CSV
    Injection), and control characters are escaped.
    """
    if isinstance(value, dict | list):
        value = json.dumps(value, sort_keys=True)
    if not isinstance(value, str):
        return "" if value is None else value
    return f"'{printable(value)}" if value.startswith(FORMULA) else printable(value)
