"""Results as text: tables for the console, and one line for what came out."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

from zoo.errors import printable
from zoo.evaluation.curves import Curve, Panel, Row, panels
from zoo.evaluation.exports import (
    MANY_LENGTHS,
    interval_text,
    measures_of,
    number,
    seen_in_training,
    what_is_scored,
)
from zoo.listing import table

LEAST_WANTED = ("loss nats", "perplexity", "MB", "tokens/s", "95 % interval")
"""Columns that go, in this order, where a terminal is too narrow for all."""


SPEED = "tokens/s: what the model reads, by the seconds of the whole measurement, on all devices together"
"""What a column of that name counts: in overlapping windows a token is read more than once."""


def rows_as_text(rows: Iterable[Row], lengths: Sequence[int] = ()) -> str:
    """Tables of results for the console, one for each protocol; the trained length is marked.

    Args:
        lengths: the order of the rows in a table, where these are its lengths; else they ascend.
    """
    rows = list(rows)
    several = len({row["run"] for row in rows}) > 1
    parts = []
    for panel in panels(rows):
        order = _in_order(panel, lengths)
        about = what_is_scored(panel.rows)
        heading = f"{panel.title}: {about}" if about else panel.title
        shown = _notes(panel)
        if not all("note" in row for row in panel.rows):
            shown.insert(
                0, _wide(panel, order) if len(order) > MANY_LENGTHS else _long(panel, order, several)
            )
        parts.append("\n".join([heading, *shown] if heading else shown))
    return "\n\n".join(parts)


def _in_order(panel: Panel, asked: Sequence[int]) -> list[int]:
    """The lengths of a panel as they were asked for, if it has no others."""
    ascending = panel.lengths
    order = [length for length in dict.fromkeys(asked) if length in ascending]
    return order if len(order) == len(ascending) else ascending


def summary_line(rows: Sequence[Row]) -> str:
    """What came out by the first protocol, in one line."""
    several = len({row.get("protocol") for row in rows}) > 1
    rows = [row for row in rows if row.get("protocol") == rows[0].get("protocol")]
    measure = "accuracy" if any("accuracy" in row for row in rows) else "perplexity"
    measured = [row for row in rows if "note" not in row]
    parts = [f"{number(row[measure]) or 'not finite'} at {row['length']} ({_ratio(row)})" for row in measured]
    line = f"{measure} ({rows[0]['protocol']}): " if several else f"{measure}: "
    line += ", ".join(parts) or "not measured"
    # A reason is told once, however many lengths it rules out.
    for note in dict.fromkeys(row["note"] for row in rows if "note" in row):
        lengths = ", ".join(str(row["length"]) for row in rows if row.get("note") == note)
        line += f"; not at {lengths}: {printable(note)}"
    return line


def _long(panel: Panel, order: Sequence[int], several: bool) -> str:
    """A line for each row."""
    measures = measures_of(panel)
    if "loss_nats" not in measures and any("loss_nats" in row for row in panel.rows):
        measures.append("loss_nats")
    main, others = measures[:1], measures[1:]
    seeds = any(curve.seeds > 1 for curve in panel.curves)
    counts = () if what_is_scored(panel.rows) else _counts(panel)
    lines = []
    for curve in panel.curves:
        for row in (row for length in order for row in curve.at(length)):
            line = {"run": str(row["run"])} if several else {}
            line |= {"encoding": curve.label, "length": f"{row['length']} {_ratio(row)}"}
            line |= {"seed": str(row.get("seed"))} if seeds else {}
            for measure in main:
                line[measure] = "–" if "note" in row else number(row.get(measure)) or "not finite"
                line["95 % interval"] = interval_text(row, measure)
            line |= {measure: number(row.get(measure)) for measure in others}
            line |= {name: _whole(row.get(name)) for name in counts}
            line |= {
                "tokens/s": _whole(row.get("tokens_per_second")),
                "MB": _whole(row.get("peak_memory_mb")),
            }
            lines.append({name.replace("_", " "): text for name, text in line.items()})
    columns = [name for name in lines[0] if name == "length" or any(line[name] for line in lines)]
    columns = _fitting(columns, lines)
    return table(tuple(columns), [tuple(line[name] for name in columns) for line in lines])


def _notes(panel: Panel) -> list[str]:
    """Why something was not measured, each reason once, however many lengths it rules out; and what training
    may have seen of what was."""
    reasons: dict[tuple[str, str], list[int]] = {}
    for curve in panel.curves:
        for row in curve.rows:
            if "note" in row:
                reasons.setdefault((curve.label, row["note"]), []).append(row["length"])
    notes = [
        f"{label}: not at {', '.join(map(str, dict.fromkeys(lengths)))}: {printable(note)}"
        for (label, note), lengths in reasons.items()
    ]
    seen = seen_in_training(panel.rows)
    return [*notes, seen] if seen else notes


def _wide(panel: Panel, order: Sequence[int]) -> str:
    """A line for each length and a column for each curve; several tables where a terminal is narrow."""
    head = ("length", *(curve.label for curve in panel.curves))
    lines = []
    for length in order:
        rows = [(curve.at(length) or [{}])[0] for curve in panel.curves]
        ratio = next(_ratio(row) for row in rows if row)
        lines.append((f"{length} {ratio}", *(_cell(curve, length, panel) for curve in panel.curves)))
    for name, key in (("tokens/s", "tokens_per_second"), ("MB", "peak_memory_mb")):
        costs = [[row[key] for row in c.rows if row.get(key) is not None] for c in panel.curves]
        if any(costs):
            lines.append((name, *(_whole(max(cost, default=None)) for cost in costs)))
    widths = [max(len(line[column]) for line in [head, *lines]) + 2 for column in range(len(head))]
    parts, first, limit = [], 1, _terminal_width()
    while first < len(head):
        last = first + 1
        while last < len(head) and widths[0] + sum(widths[first : last + 1]) <= (limit or sys.maxsize) + 2:
            last += 1
        parts.append([(line[0], *line[first:last]) for line in [head, *lines]])
        first = last
    measure = (panel.measure or "not measured").replace("_", " ")
    return f"{measure}\n" + "\n\n".join(table(part[0], part[1:]) for part in parts)


def _cell(curve: Curve, length: int, panel: Panel) -> str:
    rows = curve.at(length)
    mean = curve.mean(length, panel.measure or "")
    if mean is None:
        return "" if not rows else "–" if any("note" in row for row in rows) else "not finite"
    ends = interval_text(rows[0], panel.measure)
    # Of many curves the intervals would push one another off the terminal; the files have them.
    return f"{number(mean)} [{ends}]" if ends and len(rows) == 1 and len(panel.curves) < 4 else number(mean)


def _fitting(columns: list[str], lines: Sequence[dict[str, str]]) -> list[str]:
    limit = _terminal_width()
    for unwanted in LEAST_WANTED:
        widths = [max(len(name), *(len(line[name]) for line in lines)) for name in columns]
        if limit is None or sum(widths) + 2 * (len(widths) - 1) <= limit:
            break
        columns = [name for name in columns if name != unwanted]
    return columns


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _counts(panel: Panel) -> list[str]:
    names = ("documents", "tokens") if panel.measure != "accuracy" else ("examples", "samples")
    return [name for name in names if any(row.get(name) is not None for row in panel.rows)]


def _ratio(row: Row) -> str:
    ratio = row["length"] / row["train_length"]
    if ratio >= 999.5:
        return f"{ratio:,.0f}x"
    return "trained" if ratio == 1 else f"{ratio:.3g}x" if ratio > 1 else f"{ratio:.2g}x"


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
