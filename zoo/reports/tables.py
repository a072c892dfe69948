"""The tables of a report, the same for console, Markdown, page and notebook."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from zoo.comparison.findings import lengths_of
from zoo.comparison.formatting import (
    DASH,
    count_text,
    display_name,
    number,
    protocol_text,
    quoted,
    signed,
    superscript,
)
from zoo.comparison.frame import MEASURES
from zoo.reports.page import Table as PageTable
from zoo.reports.report import Report

MOST = 10
"""Lengths in a table; of more, every second or third is shown, counted from the longest."""


@dataclass(frozen=True)
class Cell:
    """A cell. `best` is better than all others of its column beyond the intervals; `spread`, its interval,
    may be left out on a narrow terminal; `tail` follows: a mark, or the number of a footnote."""

    text: str
    best: bool = False
    spread: str = ""
    tail: str = ""

    def __str__(self) -> str:
        return f"{self.text}{self.spread}{self.tail}"


@dataclass(frozen=True)
class Table:
    """A table. The first cell of a row is its name; `below` has its explanation and footnotes."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    below: tuple[str, ...] = ()

    def for_page(self) -> PageTable:
        bold = {(r, c) for r, row in enumerate(self.rows) for c, cell in enumerate(row[1:]) if cell.best}
        rows = [tuple(map(str, row)) for row in self.rows]
        return PageTable(self.header, rows, self.title, frozenset(bold), self.below)


class _Footnotes(dict[str, int]):
    """The number of each note."""

    def mark(self, note: object) -> str:
        if not isinstance(note, str) or not note:
            return ""
        return superscript(self.setdefault(note, len(self) + 1))

    def lines(self, about: Sequence[str]) -> tuple[str, ...]:
        notes = [f"{superscript(count)} {note}" for note, count in self.items()]
        return ("; ".join(filter(None, about)), *notes)


def tables(report: Report, most: int = MOST) -> list[Table]:
    """For each panel a table of its values and one of differences and ranks, and one of the costs."""
    made = [make(panel, report.subject, most) for panel in report.panels for make in (_values, _differences)]
    return [one for one in (*made, costs_table(report)) if one is not None]


def _values(panel: pd.DataFrame, subject: str, most: int) -> Table:
    """Encodings by lengths. A single curve has its other measures and costs in further rows."""
    first, lengths, notes = panel.iloc[0], _shown(panel, most), _Footnotes()
    rows = []
    for _, curve in panel.groupby("encoding", sort=False):
        at = curve.set_index("length")
        cells = [
            Cell(
                number(_none(row["mean"])),
                bool(row["best"]),
                _ends(row["low"], row["high"]),
                notes.mark(row["note"]),
            )
            for row in (at.loc[length] for length in lengths)
        ]
        rows.append((Cell(_name(curve, panel)), *cells))
    if panel["encoding"].nunique() == 1:
        at = panel.set_index("length")
        columns = {name: (display_name(name), number) for name in MEASURES}
        columns |= {
            "tokens_per_second": ("tokens/s", count_text),
            "peak_memory_mb": ("peak memory (MiB)", count_text),
        }
        for column, (name, text) in columns.items():
            if at[column].notna().any():
                rows.append((Cell(name), *(Cell(text(_none(at.loc[length, column]))) for length in lengths)))
    counts = panel["count"].dropna()
    about = [
        f"{display_name(first['measure'])}, {'lower' if first['lower_is_better'] else 'higher'} is better",
        spread_text(panel),
        f"{first['counted']}: {_from_to(counts)}" if len(counts) else "",
        f"seeds: {_from_to(panel['seeds'])}",
    ]
    if len(lengths) < panel["length"].nunique():
        about.append(f"{len(lengths)} of {panel['length'].nunique()} lengths are shown; the CSV file has all")
    title = f"{panel_title(panel)}: {display_name(first['measure'])} by {first['axis']} in tokens"
    return Table(title, (subject, *_heads(panel, lengths)), tuple(rows), notes.lines(about))


def _differences(panel: pd.DataFrame, subject: str, most: int) -> Table | None:
    """Differences to the reference at each length, and ranks; None without a second curve."""
    first, lengths, notes, rows = panel.iloc[0], _shown(panel, most), _Footnotes(), []
    reference = first["reference"]
    if not isinstance(reference, str):
        return None
    ranked = tuple(dict.fromkeys(lengths_of(panel)))
    for label, curve in panel.groupby("encoding", sort=False):
        at = curve.set_index("length")
        cells = []
        for row in (at.loc[length] for length in lengths):
            if label == reference or math.isnan(row["difference"]):
                cells.append(Cell("reference" if label == reference else DASH))
                continue
            low, high = row["difference_low"], row["difference_high"]
            tied = low <= 0 <= high
            spread = "" if math.isnan(low) else f" ({signed(low)} to {signed(high)})"
            why = f"no interval: {row['no_interval']}" if math.isnan(low) else ""
            cells.append(
                Cell(signed(row["difference"]), False, spread, (" tied" if tied else "") + notes.mark(why))
            )
        cells += [Cell(rank_text(panel, label, length)) for length in ranked]
        rows.append((Cell(_name(curve, panel)), *cells))
    about = [f"{'below' if first['lower_is_better'] else 'above'} zero is better than {quoted(reference)}"]
    if interval := next(iter(panel["interval"].dropna()), ""):
        about.append(f"in brackets the {interval} of the paired difference, tied where it includes zero")
    about.append("rank: 1 + the number of those that are better beyond the interval of the difference")
    heads = (subject, *_heads(panel, lengths), *(f"rank at {length}" for length in ranked))
    return Table(f"{panel_title(panel)}: difference to {reference}", heads, tuple(rows), notes.lines(about))


def costs_table(report: Report) -> Table | None:
    """The costs of each encoding, means over its runs."""
    if not len(report.costs):
        return None
    length = report.costs["evaluation_length"].iloc[0]
    at = "" if length is None or pd.isna(length) else f" at {int(length)}"
    columns = {
        "added_parameters": "added parameters", "parameters": "parameters",
        "training_tokens_per_second": "training tokens/s",
        "evaluation_tokens_per_second": f"evaluation tokens/s{at}",
        "peak_memory_mb": f"peak memory{at} (MiB)",
    }  # fmt: skip
    rows = [
        (Cell(label), *(Cell(count_text(_none(own[column]))) for column in columns))
        for label, own in report.costs.iterrows()
    ]
    longest = (
        f"evaluation by {panel_title(report.panels[0])}, at the longest length that all have" if at else ""
    )
    return Table("Costs", (report.subject, *columns.values()), tuple(rows), (longest,) if longest else ())


def order_text(report: Report) -> str:
    """How the encodings are ordered, and which are tied; empty for one."""
    if report.summary["encoding"].nunique() < 2:
        return ""
    panel = report.panels[0]
    length = lengths_of(panel)[1]
    rows, measure = panel[panel["length"] == length], display_name(panel.iloc[0]["measure"])
    order = f"{report.subject.capitalize()}s in the order of {measure} at {length} tokens"
    if why := rows.iloc[0]["unranked"]:
        return f"{order}, without a ranking: there is no interval ({why})."
    first = [quoted(label) for label in rows.loc[rows["rank"] == 1, "encoding"]]
    return f"{order}, where {', '.join(first)} are tied." if len(first) > 1 else f"{order}."


def panel_title(panel: pd.DataFrame) -> str:
    return protocol_text(panel.iloc[0]["protocol"], json.loads(panel.iloc[0]["parameters"]))


def rank_text(panel: pd.DataFrame, label: str, length: int) -> str:
    """The rank of a curve: 1, or 2= where others have it too."""
    ranks = panel[panel["length"] == length].set_index("encoding")["rank"]
    if math.isnan(ranks[label]):
        return DASH
    return f"{int(ranks[label])}{'=' if (ranks == ranks[label]).sum() > 1 else ''}"


def spread_text(panel: pd.DataFrame) -> str:
    """The kind of the intervals beside the values, or why there are none."""
    if interval := next(iter(panel["interval"].dropna()), ""):
        few = panel.loc[panel["seeds"] == 1, "encoding"].unique()
        averaged = "seeds" not in interval and (panel["seeds"] > 1).any()
        named = ", ".join(map(quoted, few)) or "another curve"
        why = f"; not over seeds, since {named} has one" if averaged else ""
        return f"(low–high): {interval}{why}"
    reasons = "; ".join(dict.fromkeys(filter(None, panel["unranked"])))
    return f"no interval{f': {reasons}' if reasons else ''}"


def _shown(panel: pd.DataFrame, most: int) -> list[int]:
    """The lengths of a table: the longest, the trained ones, and others evenly between."""
    lengths = sorted(panel["length"].unique().tolist())
    kept = {*lengths[:: -math.ceil(len(lengths) / most)], *panel["train_length"]}
    return [length for length in lengths if length in kept]


def _heads(panel: pd.DataFrame, lengths: Sequence[int]) -> list[str]:
    trained = set(panel["train_length"])
    return [f"{one} (trained)" if trained == {one} else str(one) for one in lengths]


def _name(curve: pd.DataFrame, panel: pd.DataFrame) -> str:
    """The label, with the trained length where the panel has several."""
    several = panel["train_length"].nunique() > 1
    first = curve.iloc[0]
    return f"{first['encoding']}{f', trained at {first.train_length}' if several else ''}"


def _ends(low: float, high: float) -> str:
    return "" if math.isnan(low) else f" ({number(low)}–{number(high)})"


def _from_to(counts: pd.Series) -> str:
    return "–".join(f"{int(count):,}" for count in dict.fromkeys((counts.min(), counts.max())))


def _none(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
