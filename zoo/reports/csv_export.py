"""A report, and the rows of one run, as CSV: for whoever draws plots or computes of their own."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence

from zoo.reports.compared_run import Row
from zoo.reports.formatting import spreadsheet_safe
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
MEASURES = (
    "accuracy", "token_accuracy", "value_accuracy", "accuracy_within", "accuracy_beyond",
    "bits_per_byte", "loss_nats", "perplexity", "word_perplexity",
)  # fmt: skip


def as_csv(report: Report) -> str:
    """A line for each curve, length and protocol, with what it cost there.

    `low` and `high` are the ends of the mean's interval, and `interval` says over what; `sd` is the standard
    deviation over seeds. `difference` is the mean less that of `reference` at this length,
    `difference_low` and `difference_high` are the ends of its paired interval; `rank` is 1 + the number of
    encodings that are better beyond the interval of theirs. Texts are made inert for spreadsheets.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    of = {cost.label: cost for cost in report.costs}
    comparable = f"no: {'; '.join(report.differences)}" if report.differences else "yes"
    for panel in report.panels:
        for curve in panel.curves:
            cost = of[curve.label]
            columns = zip(
                panel.lengths, curve.mean, curve.sd, curve.low, curve.high, curve.measured, curve.counts,
                curve.tokens_per_second, curve.peak_memory_mb, strict=True,
            )  # fmt: skip
            for length, mean, sd, low, high, measured, count, speed, memory in columns:
                one = panel.between(length, curve.label, panel.reference)
                apart = (one.value, one.low, one.high) if one else (None, None, None)
                writer.writerow(map(spreadsheet_safe, (
                    curve.label, panel.protocol, json.dumps(panel.parameters, sort_keys=True), length,
                    curve.train_length, panel.measure, mean, sd, low, high,
                    panel.interval if low is not None else None, panel.rank(curve.label, length),
                    panel.reference if panel.pairs else None, *apart, curve.seeds, measured,
                    panel.counted, count, curve.notes.get(length), cost.added_parameters, cost.parameters,
                    cost.training_tokens_per_second, speed, memory, " ".join(curve.runs), comparable,
                )))  # fmt: skip
    return text.getvalue()


def rows_as_csv(rows: Sequence[Row]) -> str:
    """A line for each row; what is not a number or a text (`changed`, `parameters`) is JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = row_columns(rows)
    writer.writerow(columns)
    writer.writerows([_flat(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()


def row_columns(rows: Iterable[Row]) -> list[str]:
    """The columns that rows have, in the same order whichever they are."""
    there = {column for row in rows for column in row}
    measures = [f"{measure}{end}" for measure in MEASURES for end in ("", "_low", "_high")]
    known = [*FACTS, *measures, "tokens_per_second", "peak_memory_mb"]
    others = sorted(there - {*known, "note"}, key=lambda name: (name.removesuffix("_low"), name))
    return [column for column in [*known, *others, "note"] if column in there]


def _flat(value: object) -> object:
    return spreadsheet_safe(json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value)
