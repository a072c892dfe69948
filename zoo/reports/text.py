"""A report as text for a terminal, and as Markdown."""

from __future__ import annotations

import html
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence

from zoo.errors import printable
from zoo.reports.report import Caveat, Report
from zoo.reports.tables import Cell, Table, order_text, tables

NOT_COMPARABLE = "NOT COMPARABLE"
BOLD, PLAIN = "\033[1m", "\033[0m"


def terminal() -> tuple[int | None, bool]:
    """The width of the terminal, None where the output goes elsewhere, and whether it shows bold."""
    if not sys.stdout.isatty():
        return None, False
    return shutil.get_terminal_size().columns, "NO_COLOR" not in os.environ


def console(report: Report, width: int | None = None, bold: bool = False) -> str:
    """The tables of a report and what is said around them, but for the verdict.

    Args:
        width: of the terminal, in columns; a table too wide for it goes without the intervals, and says so.
            None: as wide as need be.
        bold: whether the terminal shows the best values in bold.
    """
    parts = [printable(report.title)]
    if report.differences:
        lines = [f"{NOT_COMPARABLE}: compared nevertheless (--force), although", *report.differences]
        parts.append("\n  ".join(map(printable, lines)))
    parts += [one for one in [order_text(report)] if one]
    parts += [_table_text(table, width, bold) for table in tables(report)]
    if report.caveats:
        lines = ["Caveats:"]
        for one in report.caveats:
            lines.append(f"- {printable(one.text)}{':' if one.command else ''}")
            # On a line of its own, to be copied.
            lines += [f"    {printable(one.command)}"] if one.command else []
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _table_text(table: Table, width: int | None, bold: bool) -> str:
    text, below = _aligned(table, True, bold), [printable(line) for line in table.below]
    if width is not None and max(map(len, _aligned(table, True, False).splitlines())) > width:
        text = _aligned(table, False, bold)
        below.append("(intervals are left out: the terminal is too narrow; they are in the files)")
    title = printable(table.title)
    return "\n".join([f"{BOLD}{title}{PLAIN}" if bold else title, text, *below])


def _aligned(table: Table, spread: bool, bold: bool) -> str:
    """Names to the left, numbers to the right."""
    rows = [[Cell(text) for text in table.header]]
    rows += [[Cell(line.label + line.beside), *line.cells] for line in table.lines]
    texts = [[printable(cell.text + cell.spread * spread + cell.tail) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = []
    for row, own in zip(rows, texts, strict=True):
        cells = [own[0].ljust(widths[0]), *map(str.rjust, own[1:], widths[1:])]
        if bold:  # its codes have no width
            cells = [
                f"{BOLD}{text}{PLAIN}" if cell.best else text for text, cell in zip(cells, row, strict=True)
            ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(report: Report, pictures: Sequence[str] = ()) -> str:
    """The whole report, with links to pictures beside it."""
    parts = [f"# {_plain(report.title)}"]
    if report.differences:
        why = "\n".join(f"> - {_plain(one)}" for one in report.differences)
        parts.append(f"> **{NOT_COMPARABLE}**: compared nevertheless (`--force`), although\n{why}")
    if report.about:
        parts.append(_plain("; ".join(f"{name}: {value}" for name, value in report.about)) + ".")
    parts += [f"![{name}]({name})" for name in pictures]
    parts += [_plain(one) for one in [order_text(report)] if one]
    explained = {panel.protocol: panel.explanation for panel in report.panels if panel.explanation}
    parts += [f"- {_plain(protocol)}: {_plain(text)}" for protocol, text in explained.items()]
    parts += map(_table_markdown, tables(report))
    if report.verdict:
        parts += ["## Verdict", _plain(report.verdict)]
    if report.caveats:
        caveats = "\n".join(map(_caveat_markdown, report.caveats))
        parts.append(
            f"<details><summary>Caveats ({len(report.caveats)})</summary>\n\n{caveats}\n\n</details>"
        )
    return "\n\n".join(parts) + "\n"


def _table_markdown(table: Table) -> str:
    lines = [
        _line(map(_plain, table.header)),
        _line(["---", *["---:"] * (len(table.header) - 1)]),
        *(_line([_plain(one.label + one.beside), *map(_cell, one.cells)]) for one in table.lines),
    ]
    # Two blanks at its end break a line.
    below = "\n".join(f"{_plain(line)}  " for line in table.below)
    return "\n\n".join([f"## {_plain(table.title)}", "\n".join(lines), *[below] * bool(below)])


def _caveat_markdown(caveat: Caveat) -> str:
    """An item of a list, its command as code below it."""
    if not caveat.command:
        return f"- {_plain(caveat.text)}"
    # A fence longer than any in the command; within, nothing is Markdown.
    fence = "`" * max(3, 1 + max(map(len, re.findall("`*", caveat.command))))
    return f"- {_plain(caveat.text)}:\n\n  {fence}sh\n  {printable(caveat.command)}\n  {fence}\n"


def _cell(cell: Cell) -> str:
    value = f"**{_plain(cell.text)}**" if cell.best else _plain(cell.text)
    return f"{value}{_plain(cell.spread)}{_plain(cell.tail)}"


def _plain(text: str) -> str:
    """Text on one line of which nothing is read as Markdown or HTML, whatever a run is called."""
    return re.sub(r"([\\`*\[\]])", r"\\\1", html.escape(printable(text), quote=False))


def _line(cells: Iterable[str]) -> str:
    """A line of a table; a bar in a cell would end it, and a line end the table."""
    return "| " + " | ".join(printable(cell).replace("|", "\\|") for cell in cells) + " |"
