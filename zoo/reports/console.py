"""A report as text for a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from zoo.errors import printable
from zoo.reports.report import Report
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
        why = [f"  {printable(one)}" for one in report.differences]
        parts.append("\n".join([f"{NOT_COMPARABLE}: compared nevertheless (--force), although", *why]))
    parts.append(printable(order_text(report)))
    parts += [table_text(table, width, bold) for table in tables(report)]
    if report.caveats:
        lines = ["Caveats:"]
        for one in report.caveats:
            lines.append(f"- {printable(one.text)}{':' if one.commands else ''}")
            # On lines of their own, to be copied.
            lines += [f"    {printable(command)}" for command in one.commands]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def table_text(table: Table, width: int | None = None, bold: bool = False) -> str:
    """A table with its title and notes; arguments as of `console`."""
    text, below = _aligned(table, True, bold), [printable(line) for line in table.below]
    if width is not None and max(map(len, _aligned(table, True, False).splitlines())) > width:
        text = _aligned(table, False, bold)
        below.append("(intervals are left out: the terminal is too narrow; they are in the files)")
    title = printable(table.title)
    return "\n".join([f"{BOLD}{title}{PLAIN}" if bold else title, text, *below])


def _aligned(table: Table, spread: bool, bold: bool) -> str:
    rows: list[Sequence[Cell]] = [[Cell(text) for text in table.header]]
    rows += [[Cell(line.label + line.beside), *line.cells] for line in table.lines]
    texts = [[printable(cell.text + cell.spread * spread + cell.tail) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = []
    for row, own in zip(rows, texts, strict=True):
        # Names to the left, numbers to the right; codes for bold have no width.
        cells = [
            text.rjust(size) if index else text.ljust(size)
            for index, (text, size) in enumerate(zip(own, widths, strict=True))
        ]
        if bold:
            cells = [
                f"{BOLD}{text}{PLAIN}" if cell.best else text for text, cell in zip(cells, row, strict=True)
            ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
