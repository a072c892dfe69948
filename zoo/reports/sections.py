"""The sections of a report's page."""

from __future__ import annotations

from collections.abc import Iterator

from zoo.figures.curves import interactive_curves
from zoo.reports.page import Code, Folded, Part, Section, Warned, page
from zoo.reports.report import Report
from zoo.reports.tables import order_text, panel_title, tables

ALL = 10**6


def report_page(report: Report, more: list[Section] | None = None) -> str:
    """The HTML document of a report; `more` are sections before the caveats."""
    title = f"{'Not comparable: ' if report.differences else ''}{report.title}"
    return page(title, [*_results(report), *(more or []), *_end(report)])


def _results(report: Report) -> Iterator[Section]:
    opening: list[Part] = []
    if report.differences:
        text = "These runs are not comparable; any of these may be the cause of a difference:"
        opening.append(Warned(text, report.differences))
    opening += ["; ".join(f"{name}: {value}" for name, value in report.about)] if report.about else []
    opening += [report.verdict] if report.verdict else []
    opening += [order_text(report)] if len(report.summary) and order_text(report) else []
    yield Section("", opening)
    made = tables(report, ALL)
    for panel in report.panels:
        own = [one.for_page() for one in made if one.title.startswith(f"{panel_title(panel)}: ")]
        yield Section(panel_title(panel), [panel["explanation"].iloc[0], interactive_curves(panel), *own])
    if len(report.costs):
        yield Section("Costs", [made[-1].for_page()])


def _end(report: Report) -> Iterator[Section]:
    parts: list[Part] = []
    if report.command:
        parts += ["This page was made by:", Code(report.command)]
    if report.caveats:
        caveats: list[Part] = []
        for one in report.caveats:
            caveats += [one.line, *[Code(one.command)] * bool(one.command)]
        parts.append(Folded(f"Caveats ({len(report.caveats)})", caveats))
    if parts:
        yield Section("How to reproduce" if report.command else "Caveats", parts)
