"""The files of a comparison, in a folder of their own."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from zoo.errors import InputError, RunError
from zoo.files import atomic_write, disk_full_error, fsync_folder, full_disk_message, is_disk_full
from zoo.reports.console import NOT_COMPARABLE
from zoo.reports.csv_export import COLUMNS, as_csv
from zoo.reports.markdown import markdown
from zoo.reports.page import page
from zoo.reports.plot import plot
from zoo.reports.report import Report
from zoo.runs.lock import lock_run, unlock

TABLE, DATA, PAGE = "compare.md", "compare.csv", "index.html"
PICTURES = ("compare.png", "compare.svg")
FILES = (TABLE, DATA, *PICTURES, PAGE)


def validate_out(folder: Path) -> None:
    """Raises InputError where a comparison cannot go, or would stand among others' files or replace them."""
    try:
        there = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    except NotADirectoryError:
        raise InputError(f"{folder} is a file; a comparison needs a folder") from None
    except OSError as error:
        raise _unwritable(folder, error) from error
    _must_be_writable(folder)
    foreign = [name for name in there if name not in FILES]
    if not foreign and there and not _is_ours(folder / DATA):
        foreign = there
    if foreign:
        named = ", ".join([*foreign[:5], *["..."][: len(foreign) > 5]])
        raise InputError(f"{folder} holds what is no comparison's ({named}); choose another with --out")


def _must_be_writable(folder: Path) -> None:
    above = next(path for path in folder.absolute().parents if path.exists())
    # As it was given, where it was.
    named = next((path for path in folder.parents if path.absolute() == above), above)
    if not above.is_dir():
        raise InputError(f"{folder}: a comparison cannot be written there: {named} is a file")
    for path in [named, *[folder] * folder.exists()]:
        if not os.access(path, os.W_OK | os.X_OK):
            raise InputError(f"{folder}: a comparison cannot be written there: {path} is read-only")


def _is_ours(file: Path) -> bool:
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.readline().rstrip("\n").split(",")[:2] == list(COLUMNS[:2])
    except (OSError, ValueError):
        return False


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write all files of a comparison, whole: each is the old one or the new one, whatever happens meanwhile.

    Raises:
        InputError: the folder holds something else, or cannot be written.
        RunError: the disk is full.
    """
    validate_out(folder)
    try:
        with _beside(folder) as beside:
            _write_into(beside, report)
            _take_the_place(folder, beside)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return [folder / name for name in FILES if (folder / name).exists()]


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A folder to write into, on the same disk, that is gone after the block.

    What a killed process has left of its own is removed before: nobody holds it any more.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder)
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    beside.mkdir(exist_ok=True)
    held = lock_run(beside)
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        unlock(held)


def _remove_leftovers(folder: Path) -> None:
    named = re.compile(rf"\.{re.escape(folder.name)}\.\d+")
    there = []
    with suppress(PermissionError):  # to read; it may be written all the same
        there = [path for path in folder.parent.iterdir() if named.fullmatch(path.name)]
    for left in there:
        try:
            held = lock_run(left, must=True)
        except InputError:
            continue  # another comparison writes there, or nobody knows
        shutil.rmtree(left, ignore_errors=True)
        unlock(held)


def _write_into(beside: Path, report: Report) -> None:
    title = report.title
    if report.differences:
        title = f"{NOT_COMPARABLE} (--force): {title}"
    # Of a comparison of nothing but infinities there is no picture.
    plot(report.panels, *(beside / name for name in PICTURES), title=title)
    drawn = [name for name in PICTURES if (beside / name).exists()]
    atomic_write(beside / TABLE, markdown(report, drawn[:1]))
    atomic_write(beside / DATA, as_csv(report))
    atomic_write(beside / PAGE, page(report))


def _take_the_place(folder: Path, beside: Path) -> None:
    folder.mkdir(exist_ok=True)
    # The data first: by it the folder is known as ours.
    for name in sorted(FILES, key=lambda name: name != DATA):
        if (beside / name).exists():
            os.replace(beside / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    fsync_folder(folder)


def _unwritable(folder: Path, error: OSError) -> InputError | RunError:
    if not is_disk_full(error):
        return InputError(f"{folder}: a comparison cannot be written there: {error.strerror or error}")
    # What it was written into, beside, is gone.
    name = Path(error.filename or folder).name
    full = disk_full_error(folder / name if name in FILES else folder, error)
    return RunError(f"{full_disk_message(full)}; make room and try again")
