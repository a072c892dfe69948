"""A report as text for a terminal, as Markdown, and its tables for LaTeX."""

from __future__ import annotations

import html
import re
import shutil
import sys
from collections.abc import Iterable, Sequence

from zoo.comparison.formatting import DASH, SUPERSCRIPTS
from zoo.reports.page import Table
from zoo.reports.report import Report
from zoo.reports.tables import about_text, caveats, tables, verdict, warning

INTERVAL = re.compile(r" (\([^()]*\d\))")
LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--",
    "≥": r"$\geq$", "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}",
    **{one: f"\\{one}" for one in "&%$#_{}"},
    **{chr(mark): rf"\textsuperscript{{{chr(digit)}}}" for digit, mark in SUPERSCRIPTS.items()},
}  # fmt: skip


def terminal_width() -> int | None:
    """The columns of the terminal; None where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def console(report: Report, width: int | None = None) -> str:
    """The report, its verdict last.

    Args:
        width: of the terminal; a wider table is printed without intervals, and says so.
    """
    shown = [report.title, *("\n  ".join([f"{one.title}:", *one.texts]) for one in warning(report))]
    shown += [_table_text(table, width) for table in tables(report)]
    shown += ["\n- ".join([f"{one.title}:", *one.texts]) for one in caveats(report)]
    shown += [_table_text(table, width) for table in verdict(report)]
    return "\n\n".join(shown)


def _table_text(table: Table, width: int | None) -> str:
    cells = table.cells.rename(columns=" {}".format)  # at least two blanks between columns
    text, notes = cells.to_string(), [*table.notes]
    if width is not None and text.find("\n") > width:
        text = cells.replace(INTERVAL, "", regex=True).to_string()
        notes.append("(intervals are left out: the terminal is too narrow; they are in the files)")
    return "\n".join([table.caption, text, *notes])


def markdown(report: Report, pictures: Sequence[str] = ()) -> str:
    """The whole report, with links to pictures."""
    shown = [f"# {_plain(report.title)}", *([_plain(about_text(report)) + "."] if report.about else [])]
    shown += [f"![{name}]({name})" for name in pictures]
    explained = report.summary.groupby("protocol", sort=False)["explanation"].first()
    shown += [f"- {_plain(protocol)}: {_plain(text)}" for protocol, text in explained.items() if text]
    shown += map(_table_markdown, verdict(report))
    for one in warning(report):
        shown.append("\n> - ".join([f"> **{_plain(one.title)}**", *map(_plain, one.texts)]))
    shown += map(_table_markdown, tables(report))
    for one in caveats(report):
        items = "\n".join(f"- {_plain(text)}" for text in one.texts)
        shown.append(f"<details><summary>{one.title}</summary>\n\n{items}\n\n</details>")
    return "\n\n".join(shown) + "\n"


def _table_markdown(table: Table) -> str:
    rows = []
    for index, (name, *cells) in enumerate(table.cells.itertuples()):
        best = [f"**{cell}**" if (index, at) in table.bold else _plain(cell) for at, cell in enumerate(cells)]
        rows.append([_plain(name), *best])
    text = markdown_table(map(_plain, [table.cells.columns.name, *table.cells]), rows)
    below = "\n".join(f"{_plain(line)}  " for line in table.notes)  # two blanks break a line
    return "\n\n".join([f"## {_plain(table.caption)}", text, *[below] * bool(below)])


def markdown_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Cells are Markdown; an empty one is a dash."""
    header = [*header]
    lines = [header, ["---", *["--:"] * (len(header) - 1)], *([cell or DASH for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _plain(text: str) -> str:
    """Text on one line without Markdown or HTML."""
    return re.sub(r"([\\`*\[\]])", r"\\\1", html.escape(text, quote=False))


def latex(report: Report) -> str:
    """The tables of a report for a document with the packages booktabs and graphicx."""
    marked = [f"% {line}" for one in warning(report) for line in (one.title, *one.texts)]
    return "\n".join([*marked, f"% made by: {report.command}", *map(_table_latex, tables(report))])


def _table_latex(table: Table) -> str:
    cells = table.cells.rename_axis(_tex(table.cells.columns.name), axis="columns")
    style = cells.style.format(_tex).format_index(_tex).format_index(_tex, axis="columns")
    for row, column in table.bold:
        style.set_properties((cells.index[row], cells.columns[column]), textbf="--rwrap")
    body = style.to_latex(column_format="l" + "r" * len(cells.columns), hrules=True).strip()
    return "\n".join([
        "", r"\begin{table}", r"\centering", rf"\caption{{{_tex(table.caption)}}}",
        rf"\resizebox{{\linewidth}}{{!}}{{{body}}}",
        *(rf"\par{{\footnotesize {_tex(note)}}}" for note in table.notes if note), r"\end{table}", "",
    ])  # fmt: skip


def _tex(text: str) -> str:
    """Text with its special characters escaped, and minus signs."""
    return re.sub(r"(?<![\w.-])-(?=\d)", r"$-$", "".join(LATEX.get(one, one) for one in text))
