"""A report as Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from zoo.errors import printable
from zoo.reports.console import NOT_COMPARABLE
from zoo.reports.report import Caveat, Report
from zoo.reports.tables import Cell, Table, order_text, tables


def markdown(report: Report, pictures: Sequence[str] = ()) -> str:
    """The whole report, with links to pictures beside it."""
    parts = [title_markdown(report.title)]
    if report.differences:
        why = "\n".join(f"> - {_plain(one)}" for one in report.differences)
        parts.append(f"> **{NOT_COMPARABLE}**: compared nevertheless (`--force`), although\n{why}")
    if report.about:
        parts.append(_plain("; ".join(f"{name}: {value}" for name, value in report.about)) + ".")
    parts += [f"![{name}]({name})" for name in pictures]
    parts.append(_plain(order_text(report)))
    explained = {panel.kind: panel for panel in report.panels if panel.explanation}
    parts += [f"- {_plain(one.protocol)}: {_plain(one.explanation)}" for one in explained.values()]
    parts += [table_markdown(table) for table in tables(report)]
    parts += ["## Verdict", _plain(report.verdict)]
    if report.caveats:
        caveats = "\n".join(map(_caveat, report.caveats))
        parts.append(
            f"<details><summary>Caveats ({len(report.caveats)})</summary>\n\n{caveats}\n\n</details>"
        )
    return "\n\n".join(parts) + "\n"


def title_markdown(title: str) -> str:
    return f"# {_plain(title)}"


def table_markdown(table: Table) -> str:
    """A table under a heading, with its notes."""
    lines = [
        _line(map(_plain, table.header)),
        _line(["---", *["---:"] * (len(table.header) - 1)]),
        *(_line([_plain(one.label + one.beside), *map(_cell, one.cells)]) for one in table.lines),
    ]
    # Two blanks at its end break a line.
    below = "\n".join(f"{_plain(line)}  " for line in table.below)
    return "\n\n".join([f"## {_plain(table.title)}", "\n".join(lines), *[below] * bool(below)])


def _caveat(caveat: Caveat) -> str:
    """An item of a list, its commands as code below it, each on a line of its own."""
    lines = [f"- {_plain(caveat.text)}{':' if caveat.commands else ''}"]
    if caveat.commands:
        # A fence longer than any in the commands; within, nothing is Markdown.
        fence = "`" * max(3, 1 + max(len(run) for one in caveat.commands for run in re.findall("`*", one)))
        lines += ["", *(f"  {line}" for line in (f"{fence}sh", *map(printable, caveat.commands), fence)), ""]
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    value = f"**{_plain(cell.text)}**" if cell.best else _plain(cell.text)
    return f"{value}{_plain(cell.spread)}{_plain(cell.tail)}"


def _plain(text: str) -> str:
    """Text on one line of which nothing is read as Markdown or HTML, whatever a run is called."""
    return re.sub(r"([\\`*\[\]])", r"\\\1", html.escape(printable(text), quote=False))


def _line(cells: Iterable[str]) -> str:
    """A line of a table; a bar in a cell would end it, and a line end the table."""
    return "| " + " | ".join(printable(cell).replace("|", "\\|") for cell in cells) + " |"
