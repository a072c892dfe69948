"""A report as text for a terminal, and as Markdown."""

from __future__ import annotations

import html
import re
import shutil
import sys
from collections.abc import Iterable, Sequence

from zoo.reports.page import Folded, Table, Warned
from zoo.reports.report import Report
from zoo.reports.tables import parts


def terminal_width() -> int | None:
    """The columns of the terminal; None where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def console(report: Report, width: int | None = None) -> str:
    """The report without its verdict.

    Args:
        width: of the terminal; a wider table is printed without intervals, and says so.
    """
    shown = []
    for part in [report.title, *parts(report)]:
        match part:
            case Table():
                shown.append(_table_text(part, width))
            case Warned(text, reasons):
                shown.append("\n  ".join([f"{text}:", *reasons]))
            case Folded(summary, [items]):
                shown.append("\n- ".join([f"{summary}:", *items]))
            case str():
                shown.append(part)
    return "\n\n".join(shown)


def _table_text(table: Table, width: int | None) -> str:
    rows, notes = [table.header, *table.rows], [*table.notes]
    if width is not None and sum(_widths(rows)) + 2 * len(table.header) - 2 > width:
        rows = [[name, *(re.sub(r" \([^()]*\d\)", "", cell) for cell in cells)] for name, *cells in rows]
        notes.append("(intervals are left out: the terminal is too narrow; they are in the files)")
    widths = _widths(rows)
    lines = [
        "  ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])]).rstrip()
        for name, *cells in rows
    ]
    return "\n".join([table.caption, *lines, *notes])


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def markdown(report: Report, pictures: Sequence[str] = ()) -> str:
    """The whole report, with links to pictures."""
    shown = [f"# {_plain(report.title)}"]
    if report.about:
        shown.append(_plain("; ".join(f"{name}: {value}" for name, value in report.about)) + ".")
    shown += [f"![{name}]({name})" for name in pictures]
    explained = report.summary.groupby("protocol", sort=False)["explanation"].first()
    shown += [f"- {_plain(protocol)}: {_plain(text)}" for protocol, text in explained.items() if text]
    shown += ["## Verdict", "\n".join(f"- {_plain(one)}" for one in report.verdict)] if report.verdict else []
    for part in parts(report):
        match part:
            case Table():
                shown.append(_table_markdown(part))
            case Warned(text, reasons):
                shown.append("\n> - ".join([f"> **{_plain(text)}**", *map(_plain, reasons)]))
            case Folded(summary, [items]):
                lines = "\n".join(f"- {_plain(one)}" for one in items)
                shown.append(f"<details><summary>{summary}</summary>\n\n{lines}\n\n</details>")
            case str():
                shown.append(_plain(part))
    return "\n\n".join(shown) + "\n"


def _table_markdown(table: Table) -> str:
    lines = [_line(map(_plain, table.header)), _line(["---", *["---:"] * (len(table.header) - 1)])]
    for index, row in enumerate(table.rows):
        cells = [_plain(cell) for cell in row]
        for column in range(len(row)):
            if (index, column - 1) in table.bold:
                cells[column] = f"**{cells[column]}**"
        lines.append(_line(cells))
    below = "\n".join(f"{_plain(line)}  " for line in table.notes)  # two blanks break a line
    return "\n\n".join([f"## {_plain(table.caption)}", "\n".join(lines), *[below] * bool(below)])


def _plain(text: str) -> str:
    """Text on one line without Markdown or HTML."""
    return re.sub(r"([\\`*\[\]])", r"\\\1", html.escape(text, quote=False))


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
