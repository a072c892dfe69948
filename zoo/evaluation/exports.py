"""Rows in the formats that others read: CSV for programs, Markdown for people."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Iterable, Sequence

from zoo.errors import printable
from zoo.evaluation.curves import Curve, Panel, Row, panels

FACTS = (
    "run", "encoding", "changed", "checkpoint", "step", "seed", "protocol", "parameters", "length",
    "train_length", "targets", "documents", "documents_left_out", "examples", "seen_in_training",
    "tokens",
)  # fmt: skip
MEASURES = (
    "accuracy", "token_accuracy", "value_accuracy", "accuracy_within", "accuracy_beyond",
    "bits_per_byte", "loss_nats", "perplexity", "word_perplexity",
)  # fmt: skip
COSTS = ("tokens_per_second", "peak_memory_mb")
MANY_LENGTHS = 10
"""With more lengths than this they are the lines of a table and not its columns."""
TOO_FEW = "too few different examples to hold any out"
"""Why training may have seen what is scored."""
Notes = dict[str, dict[str, list[int]]]
"""For each note the curves that it is about, and at which lengths."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes a text for a formula by."""
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def as_csv(rows: Sequence[Row]) -> str:
    """A line for each row; what is not a number or a text (`changed`, `parameters`) is JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = columns_of(rows)
    writer.writerow(columns)
    writer.writerows([_flat(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()


def columns_of(rows: Iterable[Row]) -> list[str]:
    """The columns that rows have, in the same order whichever they are."""
    there = {column for row in rows for column in row}
    ends = ("", "_low", "_high")
    known = [*FACTS, *(measure + end for measure in MEASURES for end in ends), *COSTS]
    others = sorted(there - {*known, "note"}, key=lambda name: (name.removesuffix("_low"), name))
    return [column for column in [*known, *others, "note"] if column in there]


def as_markdown(rows: Sequence[Row]) -> str:
    """A table for each protocol, its parameters and each measure: encodings by lengths.

    A number has its 95 % interval in brackets where that is known, a mean over seeds its standard deviation.
    """
    names = ", ".join(sorted({str(row.get("run")) for row in rows}))
    parts = [f"# {printable(names)} by length"]
    for panel in panels(rows):
        parts.append(f"## {panel.title}")
        about, seen = what_is_scored(panel.rows), seen_in_training(panel.rows)
        told = (
            f"{about}." if about else "",
            _spread_remark(panel),
            f"{seen[0].upper()}{seen[1:]}." if seen else "",
        )
        parts.append(" ".join(part for part in told if part))
        parts += [_table(panel, measure) for measure in measures_of(panel) or ("",)]
    return "\n\n".join(part for part in parts if part) + "\n"


def measures_of(panel: Panel) -> list[str]:
    """The measures of which a panel has numbers; of a text's three losses the one that compares best."""
    there = [name for name in MEASURES if any(row.get(name) is not None for row in panel.rows)]
    others = {name for row in panel.rows for name in row if name.endswith("accuracy")} - set(there)
    there += sorted(name for name in others if any(row.get(name) is not None for row in panel.rows))
    return [
        name
        for name in there
        if name != "word_perplexity" and not (name == "loss_nats" and "bits_per_byte" in there)
    ]


def what_is_scored(rows: Sequence[Row]) -> str:
    """`262,144 tokens of 60 documents`, where it is the same in all rows; else nothing."""
    measured = [row for row in rows if "note" not in row]
    told = []
    tasks = any("accuracy" in row for row in measured)
    for name in ("examples", "samples") if tasks else ("tokens", "documents"):
        counts = {row.get(name) for row in measured}
        if len(counts) == 1 and None not in counts:
            count = counts.pop()
            told.append(f"{count:,} {name if count != 1 else name[:-1]}")
    return " of ".join(told) + (" at each length" if tasks and told else "")


def seen_in_training(rows: Iterable[Row]) -> str:
    """At which lengths training may have seen what was scored, and how much of it; else nothing."""
    lengths: dict[float, list[int]] = {}
    for row in rows:
        if row.get("seen_in_training"):
            lengths.setdefault(row["seen_in_training"], []).append(row["length"])
    told = (f"{share:.0%} of what is scored at {_listed(sorted(set(own)))}" for share, own in lengths.items())
    said = " and ".join(told)
    return f"training may have seen {said}: {TOO_FEW}" if said else ""


def _table(panel: Panel, measure: str) -> str:
    trained = {row["train_length"] for row in panel.rows}
    heads = [f"{n} (trained)" if trained == {n} else str(n) for n in panel.lengths]
    notes: Notes = {}
    cells = [[_cell(curve, length, measure, notes) for length in panel.lengths] for curve in panel.curves]
    name = measure.replace("_", " ") or "not measured"
    if len(heads) > MANY_LENGTHS:
        head = [name, *(curve.label for curve in panel.curves)]
        lines = [[length, *column] for length, column in zip(heads, zip(*cells, strict=True), strict=True)]
    else:
        head = [name, *heads]
        lines = [[curve.label, *own] for curve, own in zip(panel.curves, cells, strict=True)]
    text = [table_line(head), "|---" * len(head) + "|", *map(table_line, lines)]
    said = [
        printable(
            f"{raised(place)} {'; '.join(f'{label} at {_listed(at)}' for label, at in where.items())}: {note}"
        )
        for place, (note, where) in enumerate(notes.items(), 1)
    ]
    # Two blanks at its end break a line of Markdown.
    return "\n".join(text) + ("\n\n" + "  \n".join(said) if said else "")


def _cell(curve: Curve, length: int, measure: str, notes: Notes) -> str:
    rows = curve.at(length)
    values = [row[measure] for row in rows if row.get(measure) is not None]

    def dash(note: str) -> str:
        notes.setdefault(note, {}).setdefault(curve.label, []).append(length)
        return f"–{raised(list(notes).index(note) + 1)}"

    failed = [row for row in rows if "note" not in row and row.get(measure) is None]
    if values and failed and "accuracy" not in measure:
        # A mean that leaves out the seed that failed would tell of a success.
        return dash(f"seed {', '.join(str(row.get('seed')) for row in failed)}: not finite")
    if not values:
        for row in rows:
            if "note" in row:
                return dash(row["note"])
        # A rate over no answers is none; a loss that is none was not finite.
        return (
            "" if not any(measure in row for row in rows) else "–" if "accuracy" in measure else "not finite"
        )
    text = number(sum(values) / len(values))
    if len(values) > 1:
        return f"{text} ± {number(statistics.stdev(values))}"
    ends = interval_text(rows[0], measure)
    return f"{text} [{ends}]" if ends else text


def interval_text(row: Row, measure: str) -> str:
    """`1.58, 1.63`; nothing where no interval is known."""
    ends = [row.get(f"{measure}_low"), row.get(f"{measure}_high")]
    return "" if None in ends else ", ".join(map(number, ends))


def number(value: float | None) -> str:
    """A measure, short enough for a table."""
    if value is None:
        return ""
    for below, form in ((10, ".3f"), (100, ".2f"), (1000, ".1f"), (1e6, ",.0f")):
        if abs(value) < below:
            return f"{value:{form}}"
    return f"{value:.2e}"


def _spread_remark(panel: Panel) -> str:
    said = []
    if any(
        row.get(f"{panel.measure}_low") is not None for c in panel.curves if c.seeds == 1 for row in c.rows
    ):
        said.append("in brackets the 95 % interval")
    if any(curve.seeds > 1 for curve in panel.curves):
        said.append("after ± the standard deviation over seeds")
    return f"{', '.join(said).capitalize()}." if said else ""


def _listed(lengths: Sequence[int]) -> str:
    return ", ".join(map(str, lengths))


def raised(place: int) -> str:
    """The number of a footnote."""
    return str(place).translate(SUPERSCRIPTS)


def table_line(cells: Iterable[str]) -> str:
    """A line of a Markdown table; a bar in a cell would end it, and a line end the table."""
    return "| " + " | ".join(printable(cell).replace("|", "\\|") for cell in cells) + " |"


def inert(value: object) -> object:
    """A value for a CSV file that no spreadsheet takes for a formula and no terminal acts upon.

    Numbers are as they are. A text that begins as a formula does gets an apostrophe before it (OWASP, CSV
    Injection), and what is not shown but acted upon is escaped.
    """
    if not isinstance(value, str):
        return "" if value is None else value
    return f"'{printable(value)}" if value.startswith(FORMULA) else printable(value)


def _flat(value: object) -> object:
    return inert(json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value)
