"""The parts of a report, and its page."""

from __future__ import annotations

from collections.abc import Iterator

from zoo.comparison.formatting import panel_title
from zoo.figures.curves import interactive_curves
from zoo.reports.page import Code, Folded, Part, Section, Warned, page
from zoo.reports.report import NOT_COMPARABLE, Report
from zoo.reports.tables import tables

ALL = 10**6


def report_page(report: Report, more: list[Section] | None = None) -> str:
    """The HTML document of a report; `more` are sections before the caveats."""
    title = f"{'Not comparable: ' if report.differences else ''}{report.title}"
    return page(title, [*_results(report), *(more or []), *_end(report)])


def parts(report: Report) -> list[Part]:
    """The report without title, picture and verdict, for console, Markdown and notebook."""
    return [*_warned(report), *tables(report), *_caveats(report)]


def _results(report: Report) -> Iterator[Section]:
    opening = _warned(report)
    opening += ["; ".join(f"{name}: {value}" for name, value in report.about)] if report.about else []
    opening += [report.verdict] if report.verdict else []
    yield Section("", opening)
    made, labels = tables(report, ALL), report.summary["encoding"].unique()
    for panel in report.panels:
        own = [one for one in made if one.caption.startswith(f"{panel_title(panel)}: ")]
        yield Section(
            panel_title(panel), [panel["explanation"].iloc[0], interactive_curves(panel, labels), *own]
        )
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
