"""A comparison as text: Markdown, and the tables of the console."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from zoo.comparison.comparison import Comparison
from zoo.comparison.tables import Cell, Table, order_text, tables
from zoo.evaluation.exports import table_line

NOT_COMPARABLE = "NOT COMPARABLE"


def markdown(comparison: Comparison, pictures: Sequence[str] = ()) -> str:
    """The whole comparison as Markdown, with links to pictures beside it."""
    parts = [f"# {_plain(comparison.title)}"]
    if comparison.differences:
        told = "\n".join(f"> - {_plain(one)}" for one in comparison.differences)
        parts.append(f"> **{NOT_COMPARABLE}**: compared nevertheless (`--force`). What forbids it:\n{told}")
    parts.append(_plain("; ".join(f"{name}: {value}" for name, value in comparison.about)) + ".")
    parts += [f"![{name}]({name})" for name in pictures]
    parts.append(order_text(comparison))
    for table in tables(comparison):
        lines = [table_line(table.header), table_line(["---", *["---:"] * (len(table.header) - 1)])]
        lines += [table_line([_in_markdown(cell) for cell in row]) for row in table.rows]
        below = "\n".join(f"{_plain(line)}  " for line in table.below)
        parts += [f"## {table.title}", "\n".join(lines), below]
    if comparison.remarks:
        parts += ["## Remarks", "\n".join(f"- {_plain(remark)}" for remark in comparison.remarks)]
    return "\n\n".join(parts) + "\n"


def _in_markdown(cell: Cell) -> str:
    value = f"**{cell.text}**" if cell.best else _plain(cell.text)
    return f"{value}{cell.spread}{cell.mark}"


def _plain(text: str) -> str:
    """Text of which nothing is read as Markdown or HTML, whatever a run is called."""
    return re.sub(r"([\\`*\[\]])", r"\\\1", html.escape(text, quote=False))


def console(comparison: Comparison, width: int | None = None, bold: bool = False) -> str:
    """The same tables for a console.

    Args:
        width: of the terminal, in columns; a table too wide for it goes without the spread, and says so.
            None: as wide as need be.
        bold: whether the terminal shows the best values in bold.
    """
    parts = [comparison.title]
    if comparison.differences:
        parts.append(
            "\n".join([f"{NOT_COMPARABLE}: compared nevertheless (--force). What forbids it:"]
                      + [f"  {one}" for one in comparison.differences])
        )  # fmt: skip
    parts.append(order_text(comparison))
    for table in tables(comparison):
        text = _aligned(table, True, bold)
        below = list(table.below)
        if width is not None and _widest(_aligned(table, True, False)) > width:
            text = _aligned(table, False, bold)
            below.append("(the spread is left out: the terminal is too narrow; it is in the files)")
        title = f"\033[1m{table.title}\033[0m" if bold else table.title
        parts.append("\n".join([title, text, *below]))
    if comparison.remarks:
        parts.append("\n".join(["remarks:", *(f"  {remark}" for remark in comparison.remarks)]))
    return "\n\n".join(parts)


def _widest(text: str) -> int:
    return max(map(len, text.splitlines()))


def _aligned(table: Table, spread: bool, bold: bool) -> str:
    rows = [
        [Cell(cell.text + (cell.spread if spread else "") + cell.mark, cell.best) for cell in row]
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
