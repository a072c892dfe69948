"""The parts of a report, the same for console, Markdown, page and notebook: tables, warnings, caveats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from zoo.comparison.formatting import (
    DASH,
    count_text,
    display_name,
    number,
    panel_title,
    quoted,
    signed,
    superscript,
)
from zoo.comparison.frame import MEASURES
from zoo.comparison.paired import FEWEST_SEEDS
from zoo.comparison.statistics import NATS_LOST, SHARE_KEPT, lengths_of
from zoo.figures.curves import interactive_curves
from zoo.reports.page import Code, Folded, Part, Picture, Section, Table, Warned, page
from zoo.reports.report import NOT_COMPARABLE, Report

ALL, MOST = 10**6, 10
"""Lengths in a table; of more, every second or third is shown, counted from the longest."""
COSTS = {"tokens_per_second": ("tokens/s", count_text), "peak_memory_mb": ("peak memory (MiB)", count_text)}
RANK = (
    "rank: 1 + the number of {}s that are better beyond the interval of the difference, as are those with a "
    "still better mean from those with a still worse one"
)


def report_page(report: Report, more: Sequence[Section] = (), svg: bytes | None = None) -> str:
    """The HTML document of a report.

    Args:
        more: sections before the caveats.
        svg: the picture of all curves, in place of interactive figures, whose script has 4.8 MB; empty for
            none.
    """
    title = f"{'Not comparable: ' if report.differences else ''}{report.title}"
    return page(title, [*_results(report, svg), *more, *_end(report)])


def parts(report: Report) -> list[Part]:
    """The report without title, picture and verdict, for console, Markdown and notebook."""
    return [*_warned(report), *tables(report), *_caveats(report)]


def _results(report: Report, svg: bytes | None) -> Iterator[Section]:
    opening = _warned(report)
    opening += ["; ".join(f"{name}: {value}" for name, value in report.about)] if report.about else []
    opening += ["Verdict:", report.verdict] if report.verdict else []
    opening += [Picture(svg, f"{report.title}: curves")] if svg else []
    yield Section("", opening)
    labels = report.summary["encoding"].unique()
    for panel in report.panels:
        figure = [] if svg is not None else [interactive_curves(panel, labels)]
        own = panel_tables(panel, report.subject, ALL)
        yield Section(panel_title(panel), [panel["explanation"].iloc[0], *figure, *own])
    if len(report.costs):
        yield Section("Costs", [costs_table(report)])


def _end(report: Report) -> Iterator[Section]:
    made: list[Part] = ["This page was made by:", Code(report.command)] if report.command else []
    made += _caveats(report)
    if made:
        yield Section("How to reproduce" if report.command else "Caveats", made)


def _warned(report: Report) -> list[Part]:
    why = f"{NOT_COMPARABLE} (--force): any of these may be the cause of a difference"
    return [Warned(why, report.differences)] if report.differences else []


def _caveats(report: Report) -> list[Part]:
    return [Folded(f"Caveats ({len(report.caveats)})", [report.caveats])] if report.caveats else []


def tables(report: Report, most: int = MOST) -> list[Table]:
    """The tables of each panel, and one of the costs."""
    made = [table for panel in report.panels for table in panel_tables(panel, report.subject, most)]
    return [*made, *([costs_table(report)] if len(report.costs) else [])]


def panel_tables(panel: pd.DataFrame, subject: str = "encoding", most: int = MOST) -> list[Table]:
    """A table of values by encoding and length; and one of differences and ranks, where there is a second
    curve. A single curve has its other measures and costs in further rows."""
    lengths = _shown(panel, most)
    compared = isinstance(panel["reference"].iloc[0], str)
    return [_values(panel, subject, lengths), *([_differences(panel, subject, lengths)] if compared else [])]


class _Cells:
    """The rows of a table by encoding and length, with footnotes."""

    def __init__(self, panel: pd.DataFrame, lengths: Sequence[int]):
        self.panel, self.lengths, self.notes = panel, lengths, {}
        trained = set(panel["train_length"])
        self.heads = [f"{one} (trained)" if trained == {one} else str(one) for one in lengths]

    def rows(self, cell: Callable[[Any], str], *more: Callable[[Any], str]) -> list[list[str]]:
        """A row for each encoding: `cell` of each length, and `more` of its first row."""
        several, made = self.panel["train_length"].nunique() > 1, []
        for label, curve in self.panel.groupby("encoding", sort=False):
            first, at = next(curve.itertuples()), {row.length: row for row in curve.itertuples()}
            name = f"{label}, trained at {first.train_length}" if several else label
            made.append([name, *(cell(at[one]) for one in self.lengths), *(one(first) for one in more)])
        return made

    def mark(self, note: object) -> str:
        known = isinstance(note, str) and note
        return superscript(self.notes.setdefault(note, len(self.notes) + 1)) if known else ""

    def lines(self, about: Sequence[str]) -> tuple[str, ...]:
        notes = [f"{superscript(count)} {note}" for note, count in self.notes.items()]
        return ("; ".join(filter(None, about)), *notes)


def _values(panel: pd.DataFrame, subject: str, lengths: Sequence[int]) -> Table:
    first, cells = panel.iloc[0], _Cells(panel, lengths)
    measure, ranks = display_name(first["measure"]), _ranks(panel)
    about = [
        f"{measure}, {'lower' if first['lower_is_better'] else 'higher'} is better",
        spread_text(panel),
        f"{first['counted']}: {_from_to(panel['count'].dropna())}" if panel["count"].notna().any() else "",
        f"seeds: {_from_to(panel['seeds'])}",
    ]
    if len(lengths) < panel["length"].nunique():
        about.append(f"{len(lengths)} of {panel['length'].nunique()} lengths are shown; the CSV file has all")
    more, heads = [], []
    if panel["effective_length"].notna().any():
        more, heads = [_effective_length], ["effective length"]
        kept = f"the loss at the trained length plus {NATS_LOST:g} nats"
        if first["measure"] == "accuracy":
            kept = f"{SHARE_KEPT:g} of the accuracy at the trained length"
        about.append(f"effective length: the longest tested one up to which all keep {kept}")

    def cell(row: Any) -> str:
        ends = "" if math.isnan(row.low) else f" ({number(row.low)}–{number(row.high)})"
        return f"{number(row.mean)}{ends}{cells.mark(row.note)}"

    rows = cells.rows(cell, *more)
    labels = panel["encoding"].unique()
    best = {
        (i, j) for i, label in enumerate(labels) for j, one in enumerate(lengths) if ranks[label, one] == "1"
    }
    if len(labels) == 1:
        columns = {name: (display_name(name), number) for name in MEASURES} | COSTS
        at = panel.set_index("length").loc[lengths]
        for column, (name, text) in columns.items():
            if panel[column].notna().any():
                rows.append([name, *map(text, at[column]), *[DASH] * len(more)])
    title = f"{panel_title(panel)}: {measure} by {first['axis']} in tokens"
    return Table((subject, *cells.heads, *heads), rows, title, frozenset(best), cells.lines(about))


def _effective_length(row: Any) -> str:
    """`256`, or `≥ 512` where no tested length is worse; a dash where it is not defined."""
    if math.isnan(row.effective_length):
        return DASH
    return f"{'≥ ' if row.effective_length_at_least else ''}{int(row.effective_length)}"


def _differences(panel: pd.DataFrame, subject: str, lengths: Sequence[int]) -> Table:
    first, cells = panel.iloc[0], _Cells(panel, lengths)
    reference, ranks, ranked = first["reference"], _ranks(panel), tuple(dict.fromkeys(lengths_of(panel)))

    def cell(row: Any) -> str:
        value, low, high = row.difference, row.difference_low, row.difference_high
        if row.encoding == reference or math.isnan(value):
            return "reference" if row.encoding == reference else DASH
        if math.isnan(low):
            return signed(value) + cells.mark(f"no interval: {row.no_interval}")
        return f"{signed(value)} ({signed(low)} to {signed(high)}){' tied' if low <= 0 <= high else ''}"

    rows = cells.rows(cell, *(lambda row, at=at: ranks[row.encoding, at] for at in ranked))
    about = [f"{'below' if first['lower_is_better'] else 'above'} zero is better than {quoted(reference)}"]
    if interval := next(iter(panel["interval"].dropna()), ""):
        about.append(f"in brackets the {interval} of the paired difference, tied where it includes zero")
    heads = (subject, *cells.heads, *(f"rank at {length}" for length in ranked))
    title = f"{panel_title(panel)}: difference to {reference}"
    return Table(heads, rows, title, notes=cells.lines([*about, RANK.format(subject)]))


def costs_table(report: Report) -> Table:
    """The costs of each encoding, means over its runs."""
    length = report.costs["evaluation_length"].iloc[0]
    at = "" if pd.isna(length) else f" at {int(length)}"
    columns = {
        "added_parameters": "added parameters", "parameters": "parameters",
        "training_tokens_per_second": "training tokens/s",
        "evaluation_tokens_per_second": f"evaluation tokens/s{at}",
        "peak_memory_mb": f"peak memory{at} (MiB)",
    }  # fmt: skip
    rows = [(label, *map(count_text, own)) for label, *own in report.costs[[*columns]].itertuples()]
    notes = (
        [f"evaluation by {panel_title(report.panels[0])}, at the longest length that all have"] if at else []
    )
    return Table((report.subject, *columns.values()), rows, "Costs", notes=notes)


def _ranks(panel: pd.DataFrame) -> dict[tuple[str, int], str]:
    """The rank of each curve at each length: 1, or 2= where others have it too."""
    same = panel.groupby(["length", "rank"])["rank"].transform("size")
    columns = zip(panel["encoding"], panel["length"], panel["rank"], same, strict=True)
    return {
        (e, n): DASH if math.isnan(rank) else f"{int(rank)}{'=' * (size > 1)}" for e, n, rank, size in columns
    }


def spread_text(panel: pd.DataFrame) -> str:
    """The kind of the intervals, or why there are none."""
    if interval := next(iter(panel["interval"].dropna()), ""):
        why = ""
        if "seeds" not in interval and (panel["seeds"] > 1).any():
            few = panel.loc[panel["seeds"] < FEWEST_SEEDS, "encoding"].unique()
            named = ", ".join(map(quoted, few)) or "another curve"
            why = (
                f"; not over seeds, since {named} ha{'ve' if len(few) > 1 else 's'} fewer than {FEWEST_SEEDS}"
            )
        return f"(low–high): {interval}{why}"
    reasons = "; ".join(dict.fromkeys(filter(None, panel["unranked"])))
    return f"no interval{f': {reasons}' if reasons else ''}"


def _shown(panel: pd.DataFrame, most: int) -> list[int]:
    """The lengths of a table: the longest, the trained ones, and others evenly between."""
    lengths = sorted(panel["length"].unique().tolist())
    kept = {*lengths[:: -math.ceil(len(lengths) / most)], *panel["train_length"]}
    return [length for length in lengths if length in kept]


def _from_to(counts: pd.Series) -> str:
    return "–".join(f"{int(count):,}" for count in dict.fromkeys((counts.min(), counts.max())))
