"""A comparison as text: Markdown, and the tables of the console."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from zoo.errors import printable
from zoo.evaluation.exports import table_line
from zoo.reports.report import Comparison, Remark
from zoo.reports.tables import Cell, Table, order_text, tables

NOT_COMPARABLE = "NOT COMPARABLE"


def markdown(comparison: Comparison, pictures: Sequence[str] = ()) -> str:
    """The whole comparison as Markdown, with links to pictures beside it."""
    parts = [f"# {_plain(comparison.title)}"]
    if comparison.differences:
        told = "\n".join(f"> - {_plain(one)}" for one in comparison.differences)
        parts.append(f"> **{NOT_COMPARABLE}**: compared nevertheless (`--force`). What forbids it:\n{told}")
    parts.append(_plain("; ".join(f"{name}: {value}" for name, value in comparison.about)) + ".")
    parts += [f"![{name}]({name})" for name in pictures]
    parts.append(_plain(order_text(comparison)))
    for table in tables(comparison):
        lines = [
            table_line(map(_plain, table.header)),
            table_line(["---", *["---:"] * (len(table.header) - 1)]),
        ]
        lines += [table_line([_in_markdown(cell) for cell in row]) for row in table.rows]
        below = "\n".join(f"{_plain(line)}  " for line in table.below)
        parts += [f"## {_plain(table.title)}", "\n".join(lines), below]
    if comparison.remarks:
        parts += ["## Remarks", "\n".join(map(_remark_in_markdown, comparison.remarks))]
    parts += ["## Verdict", _plain(comparison.verdict)]
    return "\n\n".join(parts) + "\n"


def _remark_in_markdown(remark: Remark) -> str:
    """An item of a list, its commands as code below it, each on a line of its own."""
    lines = [f"- {_plain(str(Remark(remark.text)))}{':' if remark.commands else ''}"]
    if remark.commands:
        # A fence longer than any in the commands; within, nothing is Markdown.
        fence = "`" * max(3, 1 + max(len(run) for one in remark.commands for run in re.findall("`*", one)))
        lines += ["", *(f"  {line}" for line in (f"{fence}sh", *map(printable, remark.commands), fence)), ""]
    return "\n".join(lines)


def _in_markdown(cell: Cell) -> str:
    value = f"**{_plain(cell.text)}**" if cell.best else _plain(cell.text)
    return f"{value}{_plain(cell.spread)}{_plain(cell.mark)}"


def _plain(text: str) -> str:
    """Text on one line of which nothing is read as Markdown or HTML, whatever a run is called."""
    return re.sub(r"([\\`*\[\]])", r"\\\1", html.escape(printable(text), quote=False))


def console(comparison: Comparison, width: int | None = None, bold: bool = False) -> str:
    """The same tables for a console.

    Args:
        width: of the terminal, in columns; a table too wide for it goes without the spread, and says so.
            None: as wide as need be.
        bold: whether the terminal shows the best values in bold.
    """
    parts = [printable(comparison.title)]
    if comparison.differences:
        parts.append(
            "\n".join([f"{NOT_COMPARABLE}: compared nevertheless (--force). What forbids it:"]
                      + [f"  {printable(one)}" for one in comparison.differences])
        )  # fmt: skip
    parts.append(printable(order_text(comparison)))
    for table in tables(comparison):
        text = _aligned(table, True, bold)
        below = [printable(line) for line in table.below]
        if width is not None and _widest(_aligned(table, True, False)) > width:
            text = _aligned(table, False, bold)
            below.append("(the spread is left out: the terminal is too narrow; it is in the files)")
        title = printable(table.title)
        title = f"\033[1m{title}\033[0m" if bold else title
        parts.append("\n".join([title, text, *below]))
    if comparison.remarks:
        parts.append("\n".join(["Remarks:", *(line for one in comparison.remarks for line in _remark(one))]))
    return "\n\n".join(parts)


def _remark(remark: Remark) -> list[str]:
    """An item of a list, and its commands on lines of their own, to be copied."""
    text = f"- {printable(remark.text)}{':' if remark.commands else ''}"
    return [text, *(f"    {printable(command)}" for command in remark.commands)]


def _widest(text: str) -> int:
    return max(map(len, text.splitlines()))


def _aligned(table: Table, spread: bool, bold: bool) -> str:
    rows = [
        [Cell(printable(cell.text + (cell.spread if spread else "") + cell.mark), cell.best) for cell in row]
        for row in ([Cell(text) for text in table.header], *table.rows)
    ]
    widths = [max(len(row[column].text) for row in rows) for column in range(len(table.header))]
    lines = []
    for row in rows:
        # Names to the left, numbers to the right; codes for bold have no width.
        cells = [
            cell.text.rjust(width) if index else cell.text.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        if bold:
            cells = [
                f"\033[1m{text}\033[0m" if cell.best else text for text, cell in zip(cells, row, strict=True)
            ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
