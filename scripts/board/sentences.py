"""The numbers in the texts of docs/ are those of stored files.

A line with decimal numbers ends with a comment that names the cell of each, in their order:

    FoX has 1.621 there, RoPE 1.856. <!-- cells: text/fox/32x; text/rope/32x -->

`STUDY/ENCODING/LENGTH` is a row of docs/results/values.csv: the mean over seeds by the first protocol and
measure of the study. `/NAME` after it takes another protocol or measure, `/seed N` the N-th stored seed from
0, `/low` and `/high` an end of the interval. `A - B` is the difference of two cells.
`PAGE.md#HEADING/ROW/COLUMN/N` is the N-th number of a cell in the first table with that row and column below
a heading that begins so; the page is relative to docs/results. `constant` is a number that was not measured.
A sentence keeps its own signs. `A & B` is the row that has both names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "docs" / "results"
PAGES = (
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("choose", "evaluation", "tasks", "results/index", "results/questions")
    ),
)
NUMBER = re.compile(r"(?<![\d.,])\d\.\d{2,3}\b(?!\.\d)")
CELLS = re.compile(r"<!-- cells: (.*?) -->")
BOARD = re.compile(r"(?<=<!-- board -->\n\n).*?(?=\n\n)", re.DOTALL)
"""The place of the leaderboard's table in the README."""


def filled(text: str, board: str = "") -> str:
    """A page with the stored numbers, and with the leaderboard's table where it has a place for it. A number
    whose cell is not stored stays."""
    lines = (_filled_line(line) for line in text.splitlines(keepends=True))
    return BOARD.sub(lambda _: board, "".join(lines)) if board else "".join(lines)


def problems(text: str) -> Iterator[str]:
    """The lines with a number that no cell is named for, and the cells that are not stored."""
    # Code, and tables that are made from code.
    made = re.compile(r"^```.*?^```$|<!-- table: .*?<!-- end -->", re.DOTALL | re.MULTILINE)
    outside = made.sub(lambda part: "\n" * part[0].count("\n"), text)
    outside = BOARD.sub(lambda rows: "\n" * rows[0].count("\n"), outside)
    for place, line in enumerate(outside.splitlines(), 1):
        cells = [cell.strip() for found in CELLS.findall(line) for cell in found.split(";")]
        if len(numbers := NUMBER.findall(CELLS.sub("", line))) != len(cells):
            yield f"{place}: {len(numbers)} numbers and {len(cells)} cells"
        yield from (
            f"{place}: not stored: {cell}" for cell in cells if cell != "constant" and value(cell) is None
        )


def _filled_line(line: str) -> str:
    if not (found := CELLS.search(line)):
        return line
    cells = iter(found[1].split(";"))

    def number(match: re.Match[str]) -> str:
        stored = value(next(cells, "constant").strip())
        return match[0] if stored is None else f"{abs(stored):.{len(match[0].partition('.')[2])}f}"

    return NUMBER.sub(number, line[: found.start()]) + line[found.start() :]


def value(cell: str) -> float | None:
    """The number that a cell names; None for a constant and where it is not stored."""
    first, minus, second = cell.partition(" - ")
    try:
        return _stored(first) - _stored(second) if minus else _stored(cell)
    except (LookupError, OSError):
        return None


def _stored(cell: str) -> float:
    page, is_page, rest = cell.partition(".md")
    if is_page:
        heading, *parts = rest.split("/")
        return _of_page(OUT / f"{page}.md", heading.lstrip("#"), *parts)
    if cell == "constant":
        raise LookupError(cell)
    return _of_values(*(part.strip() for part in cell.split("/")))


@cache
def _values() -> pd.DataFrame:
    return (
        pd.read_csv(OUT / "values.csv", dtype={"seeds": str})
        .set_index(["study", "encoding"])
        .sort_index(kind="stable")
    )


def _of_values(study: str, encoding: str, length: str, *further: str) -> float:
    rows = _values().loc[[(study, encoding)]]
    column, at = ("times", length[:-1]) if length.endswith("x") else ("length", length)
    rows = rows[rows[column] == float(at)]
    for part in further:
        if part in ("low", "high", "floor"):
            return float(rows.iloc[0][part])
        if part.startswith("seed "):
            return float(rows.iloc[0]["seeds"].split()[int(part[5:])])
        rows = rows[(rows["protocol"] == part) | (rows["measure"] == part)]
    return float(rows.iloc[0]["value"])


def _of_page(page: Path, heading: str, row: str, column: str, count: str = "1") -> float:
    text = page.read_text()
    if heading:
        text = text.partition(f"\n## {heading}")[2]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    heads: list[str] = []
    for line, after in zip(lines, [*lines[1:], [""]], strict=True):
        if after[0].startswith("---"):
            heads = line
        elif column in heads and {*row.split(" & ")} <= {*line[:3]}:
            return float(re.findall(r"-?\d+\.?\d*", line[heads.index(column)])[int(count) - 1])
    raise LookupError(f"{page.name} has no row {row!r} with a column {column!r}")
