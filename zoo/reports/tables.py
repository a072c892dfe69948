"""The tables of a report: what stands in a cell, who wins a column, and what is explained below.

A table is plain data; text.py and page/ write it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zoo.reports.formatting import (
    DASH,
    count_text,
    display_name,
    number,
    protocol_text,
    quoted,
    signed,
    superscript,
)  # fmt: skip
from zoo.reports.report import Curve, Difference, Panel, Report

SPEED = "tokens/s"
COLUMNS = 10
"""Lengths in a table; of more, every second or third is shown, counted from the longest."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    `best` is better than all others of its column beyond the intervals. `spread`, the interval, may be left
    out where it is too wide. `mark` is a word beside the value: tied. `note` is the number of a
    footnote.
    """

    text: str
    best: bool = False
    spread: str = ""
    mark: str = ""
    note: int | None = None

    @property
    def tail(self) -> str:
        """What stands behind the value and its interval."""
        return f"{' ' if self.mark else ''}{self.mark}{superscript(self.note)}"


@dataclass(frozen=True)
class Line:
    """A line of a table: the name of a curve, what stands beside it, and the cells."""

    label: str
    cells: tuple[Cell, ...]
    beside: str = ""


@dataclass(frozen=True)
class Table:
    """`about` is the sentence below the table, `notes` the footnotes, from 1 on."""

    title: str
    header: tuple[str, ...]
    lines: tuple[Line, ...]
    about: str = ""
    notes: tuple[str, ...] = ()

    @property
    def below(self) -> list[str]:
        notes = [f"{superscript(count)} {note}" for count, note in enumerate(self.notes, 1)]
        return [one for one in (self.about, *notes) if one]


class _Footnotes(dict[str, int]):
    """The number of each note, by its text."""

    def of(self, note: str | None) -> int | None:
        return self.setdefault(note, len(self) + 1) if note else None


def tables(report: Report) -> list[Table]:
    """For each panel a table of its values and one of differences and ranks, and one of the costs."""
    made = [make(panel) for panel in report.panels for make in (values_table, differences_table)]
    return [one for one in (*made, costs_table(report)) if one is not None]


def values_table(panel: Panel, most: int = COLUMNS) -> Table:
    """Encodings by lengths. Of one curve alone its other measures and its costs are further lines."""
    lengths, notes = _shown_lengths(panel, most), _Footnotes()
    shown = [panel.lengths.index(length) for length in lengths]
    lines = []
    for curve in panel.curves:
        cells = tuple(_value(panel, curve, index, notes) for index in shown)
        lines.append(Line(curve.label, cells, _trained_text(panel, curve)))
    counts = {count for curve in panel.curves for count in curve.counts if count is not None}
    seeds = sorted({curve.seeds for curve in panel.curves})
    about = [
        f"{display_name(panel.measure)}, {'lower' if panel.lower_is_better else 'higher'} is better",
        spread_text(panel),
        f"{panel.counted}: {_from_to(counts)}" if counts else "",
        f"seeds: {_from_to(seeds)}",
    ]
    if len(panel.curves) == 1:
        (curve,) = panel.curves
        columns = {display_name(name): [*map(number, values)] for name, values in curve.others.items()}
        columns |= {SPEED: [*map(count_text, curve.tokens_per_second)]}
        columns |= {"peak memory (MiB)": [*map(count_text, curve.peak_memory_mb)]}
        for name, texts in columns.items():
            cells = [Cell(texts[index]) for index in shown]
            if any(text != DASH for text in texts):
                lines.append(Line(name, tuple(cells)))
    if len(lengths) < len(panel.lengths):
        about.append(f"{len(lengths)} of {len(panel.lengths)} lengths are shown; the CSV file has all")
    title = f"{display_name(panel.measure)} by {panel.axis} in tokens"
    return Table(
        f"{protocol_text(panel.protocol, panel.parameters)}: {title}",
        (panel.subject, *_heads(panel, lengths)), tuple(lines), "; ".join(filter(None, about)), tuple(notes),
    )  # fmt: skip


def _value(panel: Panel, curve: Curve, index: int, notes: _Footnotes) -> Cell:
    length = panel.lengths[index]
    note = notes.of(curve.notes.get(length))
    if curve.mean[index] is None:
        return Cell(DASH, note=note)
    spread = interval_text(curve, index)
    best = panel.winner(length) == curve.label
    return Cell(number(curve.mean[index]), best, f" ({spread})" if spread else "", note=note)


def differences_table(panel: Panel, most: int = COLUMNS) -> Table | None:
    """Of each curve the difference to the reference at each length, and ranks; None of a single curve."""
    if not panel.pairs:
        return None
    lengths, ranked_at = _shown_lengths(panel, most), tuple(dict.fromkeys((panel.trained, panel.decisive)))
    notes, lines = _Footnotes(), []
    for curve in panel.curves:
        cells = [_difference(panel, curve, length, notes) for length in lengths]
        cells += [Cell(rank_text(panel, curve.label, length)) for length in ranked_at]
        lines.append(Line(curve.label, tuple(cells), _trained_text(panel, curve)))
    about = [f"{'below' if panel.lower_is_better else 'above'} zero is better than {quoted(panel.reference)}"]
    if any(one.sign is not None for one in panel.pairs.values()):
        about.append(
            f"in brackets the {panel.interval} of the paired difference, tied where it includes zero"
        )
    about.append("rank: 1 + how many are better beyond the interval of their own difference, = where equal")
    return Table(
        f"{protocol_text(panel.protocol, panel.parameters)}: difference to {panel.reference}",
        (panel.subject, *_heads(panel, lengths), *(f"rank at {length}" for length in ranked_at)),
        tuple(lines), "; ".join(about), tuple(notes),
    )  # fmt: skip


def _difference(panel: Panel, curve: Curve, length: int, notes: _Footnotes) -> Cell:
    if curve.label == panel.reference:
        return Cell("reference")
    one = panel.between(length, curve.label, panel.reference)
    if one is None:
        return Cell(DASH)
    if one.sign is None:
        return Cell(signed(one.value), note=notes.of(f"no interval: {one.why}"))
    return Cell(signed(one.value), spread=_ends(one), mark="tied" if one.sign == 0 else "")


def costs_table(report: Report) -> Table | None:
    """What each encoding costs: means over its runs."""
    if not report.costs:
        return None
    length, panel = report.costs[0].evaluation_length, report.panels[0]
    at = f" at {length}" if length is not None else ""
    lines = []
    for cost in report.costs:
        counts = (
            cost.added_parameters, cost.parameters, cost.training_tokens_per_second,
            cost.evaluation_tokens_per_second, cost.peak_memory_mb,
        )  # fmt: skip
        lines.append(Line(cost.label, tuple(Cell(count_text(count)) for count in counts)))
    protocol = protocol_text(panel.protocol, panel.parameters)
    about = (
        f"evaluation by {protocol}, at the longest length that every {panel.subject} can read" if at else ""
    )
    header = (
        panel.subject, "added parameters", "parameters", "training tokens/s", f"evaluation tokens/s{at}",
        f"peak memory{at} (MiB)",
    )  # fmt: skip
    return Table("Costs", header, tuple(lines), about)


def order_text(report: Report) -> str:
    """How the encodings are ordered, and which of them are tied; empty of one alone."""
    if len(report.labels) < 2:
        return ""
    panel = report.panels[0]
    length = panel.decisive
    order = f"{panel.subject.capitalize()}s in the order of {display_name(panel.measure)} at {length} tokens"
    if why := panel.why_unranked(length):
        return f"{order}, which is no ranking: there is no interval ({why})."
    first = [quoted(one.label) for one in panel.curves if panel.rank(one.label, length) == 1]
    if len(first) < 2:
        return f"{order}."
    return f"{order}, where {', '.join(first)} are tied: which of them stands first means nothing."


def _shown_lengths(panel: Panel, most: int) -> tuple[int, ...]:
    """The lengths that a table has room for: the longest, the trained one, and others evenly between."""
    step = math.ceil(len(panel.lengths) / most)
    kept = {*panel.lengths[::-1][::step], *panel.train_lengths}
    return tuple(length for length in panel.lengths if length in kept)


def _heads(panel: Panel, lengths: Sequence[int]) -> list[str]:
    return [f"{one} (trained)" if panel.train_lengths == (one,) else str(one) for one in lengths]


def _trained_text(panel: Panel, curve: Curve) -> str:
    """What stands beside a curve's name where curves of other trained lengths are in its panel."""
    return f", trained at {curve.train_length}" if len(panel.train_lengths) > 1 else ""


def _from_to(counts: Sequence[int] | set[int]) -> str:
    return "–".join(f"{count:,}" for count in dict.fromkeys((min(counts), max(counts))))


def interval_text(curve: Curve, index: int) -> str:
    """The interval of a mean: `1.552–1.750`; empty where there is none."""
    low, high = curve.low[index], curve.high[index]
    return f"{number(low)}–{number(high)}" if low is not None and high is not None else ""


def difference_text(one: Difference) -> str:
    """`+0.083 (+0.071 to +0.095)`; without an interval, the difference alone."""
    return signed(one.value) + _ends(one)


def _ends(one: Difference) -> str:
    return "" if one.sign is None else f" ({signed(one.low)} to {signed(one.high)})"


def rank_text(panel: Panel, label: str, length: int) -> str:
    """The rank of a curve, as 1, or as 2= where others have it too; a dash where it has none."""
    rank = panel.rank(label, length)
    if rank is None:
        return DASH
    return f"{rank}{'=' * (sum(panel.rank(one.label, length) == rank for one in panel.curves) > 1)}"


def spread_text(panel: Panel) -> str:
    """What the numbers beside the values are, the same for the whole panel, or why there are none."""
    if any(low is not None for curve in panel.curves for low in curve.low):
        few = ", ".join(quoted(curve.label) for curve in panel.curves if curve.seeds == 1)
        averaged = (
            f"; seeds are averaged and the interval is not over them, since {few or 'another curve'} has one"
        )
        return f"(low–high): {panel.interval}{averaged if panel.averaged else ''}"
    reasons = "; ".join(dict.fromkeys(one.why for one in panel.pairs.values() if one.why))
    return f"no interval{f': {reasons}' if reasons else ''}"
