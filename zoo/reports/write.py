"""The files of a comparison, in a folder of their own."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from zoo.errors import InputError, RunError
from zoo.files import atomic_file, full_disk_message, is_disk_full
from zoo.reports.csv_export import COLUMNS, as_csv
from zoo.reports.report import Report
from zoo.reports.text import NOT_COMPARABLE, markdown

STEM = "compare"
TABLE, DATA, PAGE = f"{STEM}.md", f"{STEM}.csv", "index.html"
LEFTOVER = (f".{STEM}.", f".{PAGE}.")
"""Temporary files of a killed process begin so; see `zoo.files.atomic_file`."""
FILES = (TABLE, DATA, f"{STEM}.png", f"{STEM}.svg", PAGE)


def validate_out(folder: Path) -> None:
    """Raises InputError where a comparison cannot be written, or would stand among other files."""
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not there.is_dir():
            raise InputError(f"{folder}: a comparison cannot be written there: {there} is a file")
        if not os.access(there, os.W_OK | os.X_OK):
            raise InputError(f"{folder}: a comparison cannot be written there: {there} is read-only")
        names = {path.name for path in folder.iterdir()} if there == folder else set()
        names = sorted(name for name in names if not name.startswith(LEFTOVER))
        foreign = [name for name in names if name not in FILES]
        if names and not foreign and not _is_comparison(folder / DATA):
            foreign = names
    except OSError as error:
        raise _unwritable(folder, error) from error
    if foreign:
        named = ", ".join([*foreign[:5], *["..."][: len(foreign) > 5]])
        raise InputError(f"{folder} holds other files ({named}); choose another folder with --out")


def _is_comparison(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open(encoding="utf-8", errors="replace") as opened:
        return opened.readline().startswith(",".join(COLUMNS[:2]))


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write all files of a comparison. None is replaced before all are written. There is no picture where
    nothing is finite.

    Raises:
        InputError: the folder holds something else, or cannot be written.
        RunError: the disk is full.
    """
    from zoo.figures.curves import pictures
    from zoo.reports.sections import report_page

    validate_out(folder)
    title = f"{NOT_COMPARABLE} (--force): {report.title}" if report.differences else report.title
    files = {f"{STEM}{ending}": content for ending, content in pictures(report.summary, title).items()}
    files[TABLE] = markdown(report, [*files][:1]).encode()
    files[PAGE] = report_page(report).encode()
    # It is written last and renamed first: it marks the folder as a comparison.
    files[DATA] = as_csv(report).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.name.startswith(LEFTOVER):
                path.unlink(missing_ok=True)
        with ExitStack() as written:
            for name, content in files.items():
                file = written.enter_context(atomic_file(folder / name, len(content)))
                file.write(content)
                file.flush()
        for name in set(FILES) - set(files):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return [folder / name for name in FILES if name in files]


def _unwritable(folder: Path, error: OSError) -> InputError | RunError:
    if is_disk_full(error):
        return RunError(f"{full_disk_message(error)}; make room and try again")
    return InputError(f"{folder}: a comparison cannot be written there: {error.strerror or error}")
