"""A comparison, and the rows of one run, as CSV."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.reports.report import Report

COLUMNS = (
    "encoding", "protocol", "parameters", "length", "train_length", "measure", "mean", "sd", "low", "high",
    "interval", "rank", "reference", "difference", "difference_low", "difference_high",
    "effective_length", "effective_length_at_least", "seeds", "measured", "counted", "count", "note",
    "added_parameters", "parameter_count", "training_tokens_per_second",
    "evaluation_tokens_per_second", "peak_memory_mb", "runs", "comparable",
)  # fmt: skip


def as_csv(report: Report) -> str:
    """A line for each curve, length and protocol, with its costs there.

    `low` and `high` are the ends of the mean's interval, and `interval` its kind; `sd` is the standard
    deviation over seeds. `difference` is the mean less that of `reference` at this length, with the ends of
    its paired interval; `rank` is 1 + the number of encodings that are better beyond their intervals.
    `effective_length` is one of the whole curve (`zoo.comparison.effective_length`).
    """
    comparable = f"no: {'; '.join(report.differences)}" if report.differences else "yes"
    if report.subject != "encoding":
        comparable = f"as {report.subject}s, in bits per byte of the same documents"
    table = report.summary.rename(columns={"tokens_per_second": "evaluation_tokens_per_second"})
    own = report.costs.rename(columns={"parameters": "parameter_count"})
    names = ["added_parameters", "parameter_count", "training_tokens_per_second"]
    table = table.join(own[names], on="encoding").assign(comparable=comparable)
    whole = dict.fromkeys(("rank", "count", "effective_length"), "Int64")
    return table[[*COLUMNS]].astype(whole).to_csv(index=False)


def rows_as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each row of `lengths.json`; mappings are JSON."""
    import pandas as pd

    columns = dict.fromkeys(column for row in rows for column in row)
    columns = [*(one for one in columns if one != "note"), *(one for one in columns if one == "note")]
    return pd.DataFrame(rows, columns=columns, dtype=object).map(_text).to_csv(index=False)


def _text(value: object) -> object:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value
