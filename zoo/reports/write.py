"""The files of a comparison, in a folder of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zoo.errors import InputError
from zoo.files import atomic_write, is_disk_full
from zoo.reports.csv_export import as_csv
from zoo.reports.report import NOT_COMPARABLE, Report
from zoo.reports.text import markdown

TABLE, DATA, PAGE = "compare.md", "compare.csv", "index.html"
PICTURES = (".png", ".svg", ".pdf")
FILES = (TABLE, DATA, *(f"compare{ending}" for ending in PICTURES), PAGE)


def validate_out(folder: Path) -> None:
    """Raise InputError for a folder of something else, whose index.html would be replaced."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / DATA).exists():
        raise InputError(f"{folder} holds other files; choose another folder with --out")


def write_report(report: Report, folder: Path, panels: Sequence[str] | None = None) -> list[Path]:
    """Write all files of a comparison; without a picture where nothing is finite.

    Args:
        panels: the protocols in the picture; by default all.

    Raises:
        InputError: the folder holds other files, or cannot be written.
    """
    from zoo.figures.curves import pictures
    from zoo.reports.sections import report_page

    validate_out(folder)
    title = f"{NOT_COMPARABLE} (--force): {report.title}" if report.differences else report.title
    # compare.csv comes first: it marks the folder as a comparison.
    files: dict[str, str | bytes] = {DATA: as_csv(report), PAGE: report_page(report)}
    table = report.summary
    table = table[table["protocol"].isin(panels)] if panels else table
    drawn = {f"compare{ending}": content for ending, content in pictures(table, title, PICTURES).items()}
    files |= drawn | {TABLE: markdown(report, [*drawn][:1])}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            atomic_write(folder / name, content)
        for name in set(FILES) - set(files):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        if is_disk_full(error):
            raise
        raise _unwritable(folder, error) from error
    return [folder / name for name in FILES if name in files]


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(f"{folder}: a comparison cannot be written there: {error.strerror or error}")
