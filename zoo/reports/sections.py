"""The parts of a report, and its page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zoo.comparison.formatting import panel_title
from zoo.figures.curves import interactive_curves
from zoo.reports.page import Code, Folded, Part, Picture, Section, Warned, page
from zoo.reports.report import NOT_COMPARABLE, Report
from zoo.reports.tables import tables

ALL = 10**6


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
    opening += [report.verdict] if report.verdict else []
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
