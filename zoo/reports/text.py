"""A report as text for a terminal, and as Markdown."""

from __future__ import annotations

import html
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence

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
    """The report without its verdict.

    Args:
        width: of the terminal; a wider table is printed without intervals, and says so.
        bold: print the best values in bold.
    """
    parts = [printable(report.title)]
    if report.differences:
        lines = [f"{NOT_COMPARABLE}: compared nevertheless (--force), although", *report.differences]
        parts.append("\n  ".join(map(printable, lines)))
    parts += filter(None, [order_text(report)])
    parts += [_table_text(table, width, bold) for table in tables(report)]
    if report.caveats:
        lines = ["Caveats:"]
        for one in report.caveats:
            lines.append(f"- {printable(one.line)}{':' * bool(one.command)}")
            lines += [f"    {printable(one.command)}"] * bool(one.command)
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
    rows = [tuple(map(Cell, table.header)), *table.rows]
    texts = [[printable(f"{cell.text}{cell.spread * spread}{cell.tail}") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = []
    for row, own in zip(rows, texts, strict=True):
        cells = [own[0].ljust(widths[0]), *map(str.rjust, own[1:], widths[1:])]
        if bold:
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
    explained = report.summary.groupby("protocol", sort=False)["explanation"].first()
    parts += [f"- {_plain(protocol)}: {_plain(text)}" for protocol, text in explained.items() if text]
    parts += map(_table_markdown, tables(report))
    if report.verdict:
        parts += ["## Verdict", _plain(report.verdict)]
    if report.caveats:
        lines = []
        for one in report.caveats:
            lines.append(f"- {_plain(one.line)}{':' * bool(one.command)}")
            lines += [f"\n      {printable(one.command)}\n"] * bool(one.command)
        listed = "\n".join(lines)
        parts.append(f"<details><summary>Caveats ({len(report.caveats)})</summary>\n\n{listed}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _table_markdown(table: Table) -> str:
    lines = [
        _line(map(_plain, table.header)),
        _line(["---", *["---:"] * (len(table.header) - 1)]),
        *(_line(map(_cell, row)) for row in table.rows),
    ]
    below = "\n".join(f"{_plain(line)}  " for line in table.below)  # two blanks break a line
    return "\n\n".join([f"## {_plain(table.title)}", "\n".join(lines), *[below] * bool(below)])


def _cell(cell: Cell) -> str:
    value = f"**{_plain(cell.text)}**" if cell.best else _plain(cell.text)
    return f"{value}{_plain(cell.spread)}{_plain(cell.tail)}"


def _plain(text: str) -> str:
    """Text on one line without Markdown or HTML."""
    return re.sub(r"([\\`*\[\]])", r"\\\1", html.escape(printable(text), quote=False))


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(printable(cell).replace("|", "\\|") for cell in cells) + " |"
