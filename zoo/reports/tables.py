"""The parts of a report, the same for console, Markdown, page and notebook: tables, warnings, caveats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

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


class _Footnotes(dict[str, int]):
    """The number of each note."""

    def mark(self, note: object) -> str:
        if not isinstance(note, str) or not note:
            return ""
        return superscript(self.setdefault(note, len(self) + 1))

    def lines(self, about: Sequence[str]) -> tuple[str, ...]:
        notes = [f"{superscript(count)} {note}" for note, count in self.items()]
        return ("; ".join(filter(None, about)), *notes)


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
    made, labels = tables(report, ALL), report.summary["encoding"].unique()
    for panel in report.panels:
        own = [one for one in made if one.caption.startswith(f"{panel_title(panel)}: ")]
        own = own if svg is not None else [interactive_curves(panel, labels), *own]
        yield Section(panel_title(panel), [panel["explanation"].iloc[0], *own])
    if len(report.costs):
        yield Section("Costs", [made[-1]])


def _end(report: Report) -> Iterator[Section]:
    made: list[Part] = ["This page was made by:", Code(report.command)] if report.command else []
    made += _caveats(report)
    if made:
        yield Section("How to reproduce" if report.command else "Caveats", made)


def _warned(report: Report) -> list[Part]:
    why = f"{NOT_COMPARABLE} (--force): any of these may be the cause of a difference"
    return [Warned(why, report.differences)] if report.differences else []


def _caveats(report: Report) -> list[Part]:
    lines: list[Part] = []
    for one in report.caveats:
        lines += [f"{one.line}:", Code(one.command)] if one.command else [one.line]
    return [Folded(f"Caveats ({len(report.caveats)})", lines)] if lines else []


def tables(report: Report, most: int = MOST) -> list[Table]:
    """For each panel a table of its values and one of differences and ranks, and one of the costs."""
    made = [make(panel, report.subject, most) for panel in report.panels for make in (_values, _differences)]
    return [one for one in (*made, costs_table(report)) if one is not None]


def _values(panel: pd.DataFrame, subject: str, most: int) -> Table:
    """Encodings by lengths. A single curve has its other measures and costs in further rows."""
    first, lengths, notes = panel.iloc[0], _shown(panel, most), _Footnotes()
    has_effective, rows, best = bool(panel["effective_length"].notna().any()), [], set()
    for label, curve in panel.groupby("encoding", sort=False):
        at, cells = curve.set_index("length"), []
        for column, length in enumerate(lengths):
            row = at.loc[length]
            cells.append(
                f"{number(_none(row['mean']))}{_ends(row['low'], row['high'])}{notes.mark(row['note'])}"
            )
            best |= {(len(rows), column)} if rank_text(panel, label, length) == "1" else set()
        cells += [_effective_length(curve.iloc[0])] * has_effective
        rows.append((_name(curve, panel), *cells))
    if panel["encoding"].nunique() == 1:
        at = panel.set_index("length")
        columns = {name: (display_name(name), number) for name in MEASURES}
        columns["tokens_per_second"] = "tokens/s", count_text
        columns["peak_memory_mb"] = "peak memory (MiB)", count_text
        for column, (name, text) in columns.items():
            if at[column].notna().any():
                texts = [text(_none(at.loc[length, column])) for length in lengths]
                rows.append((name, *texts, *[DASH] * has_effective))
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
    heads = (subject, *_heads(panel, lengths), *["effective length"] * has_effective)
    if has_effective:
        kept = (
            f"{SHARE_KEPT:g} of the accuracy at the trained length"
            if first["measure"] == "accuracy"
            else f"the loss at the trained length plus {NATS_LOST:g} nats"
        )
        about.append(f"effective length: the longest tested one up to which all keep {kept}")
    return Table(heads, rows, title, frozenset(best), notes.lines(about))


def _effective_length(row: pd.Series) -> str:
    """`256`, or `≥ 512` where no tested length is worse; a dash where it is not defined."""
    length = row["effective_length"]
    if math.isnan(length):
        return DASH
    return f"{'≥ ' if row['effective_length_at_least'] else ''}{int(length)}"


def _differences(panel: pd.DataFrame, subject: str, most: int) -> Table | None:
    """Differences to the reference at each length, and ranks; None without a second curve."""
    first, lengths, notes, rows = panel.iloc[0], _shown(panel, most), _Footnotes(), []
    reference = first["reference"]
    if not isinstance(reference, str):
        return None
    ranked = tuple(dict.fromkeys(lengths_of(panel)))
    for label, curve in panel.groupby("encoding", sort=False):
        at, cells = curve.set_index("length"), []
        for row in (at.loc[length] for length in lengths):
            low, high = row["difference_low"], row["difference_high"]
            if label == reference or math.isnan(row["difference"]):
                cells.append("reference" if label == reference else DASH)
            elif math.isnan(low):
                cells.append(signed(row["difference"]) + notes.mark(f"no interval: {row['no_interval']}"))
            else:
                tied = " tied" if low <= 0 <= high else ""
                cells.append(f"{signed(row['difference'])} ({signed(low)} to {signed(high)}){tied}")
        ranks = [rank_text(panel, label, length) for length in ranked]
        rows.append((_name(curve, panel), *cells, *ranks))
    about = [f"{'below' if first['lower_is_better'] else 'above'} zero is better than {quoted(reference)}"]
    if interval := next(iter(panel["interval"].dropna()), ""):
        about.append(f"in brackets the {interval} of the paired difference, tied where it includes zero")
    about.append(
        f"rank: 1 + the number of {subject}s that are better beyond the interval of the difference, as are "
        "those with a still better mean from those with a still worse one"
    )
    heads = (subject, *_heads(panel, lengths), *(f"rank at {length}" for length in ranked))
    title = f"{panel_title(panel)}: difference to {reference}"
    return Table(heads, rows, title, notes=notes.lines(about))


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
        (label, *(count_text(_none(own[column])) for column in columns))
        for label, own in report.costs.iterrows()
    ]
    notes = []
    if at:
        notes.append(f"evaluation by {panel_title(report.panels[0])}, at the longest length that all have")
    return Table((report.subject, *columns.values()), rows, "Costs", notes=notes)


def rank_text(panel: pd.DataFrame, label: str, length: int) -> str:
    """The rank of a curve: 1, or 2= where others have it too."""
    ranks = panel[panel["length"] == length].set_index("encoding")["rank"]
    if math.isnan(ranks[label]):
        return DASH
    return f"{int(ranks[label])}{'=' if (ranks == ranks[label]).sum() > 1 else ''}"


def spread_text(panel: pd.DataFrame) -> str:
    """The kind of the intervals, or why there are none."""
    if interval := next(iter(panel["interval"].dropna()), ""):
        few = panel.loc[panel["seeds"] < FEWEST_SEEDS, "encoding"].unique()
        averaged = "seeds" not in interval and (panel["seeds"] > 1).any()
        named = ", ".join(map(quoted, few)) or "another curve"
        why = (
            f"; not over seeds, since {named} ha{'ve' if len(few) > 1 else 's'} fewer than {FEWEST_SEEDS}"
            if averaged
            else ""
        )
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
