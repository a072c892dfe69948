"""The files of a comparison, in a folder of their own."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from pathlib import Path

from zoo.errors import InputError, RunError
from zoo.files import atomic_file, full_disk_message, is_disk_full
from zoo.reports.console import NOT_COMPARABLE
from zoo.reports.csv_export import COLUMNS, as_csv
from zoo.reports.markdown import markdown
from zoo.reports.page import page
from zoo.reports.plot import plot
from zoo.reports.report import Report

STEM = "compare"
TABLE, DATA, PAGE = f"{STEM}.md", f"{STEM}.csv", "index.html"
FILES = (TABLE, DATA, f"{STEM}.png", f"{STEM}.svg", PAGE)
LEFTOVER = re.compile(rf"\.(?:{'|'.join(map(re.escape, FILES))})\.(?P<process>\d+)")
"""A file that a process was writing; see `zoo.files.atomic_file`."""


def validate_out(folder: Path) -> None:
    """Raises InputError where a comparison cannot go, or would stand among others' files or replace them."""
    try:
        names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    except NotADirectoryError:
        raise InputError(f"{folder} is a file; a comparison needs a folder") from None
    except OSError as error:
        raise _unwritable(folder, error) from error
    _validate_writable(folder)
    there = [name for name in names if not LEFTOVER.fullmatch(name)]
    foreign = [name for name in there if name not in FILES]
    if not foreign and there and not _is_ours(folder / DATA):
        foreign = there
    if foreign:
        named = ", ".join([*foreign[:5], *["..."][: len(foreign) > 5]])
        raise InputError(f"{folder} holds what is no comparison's ({named}); choose another with --out")


def _validate_writable(folder: Path) -> None:
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
    """Write all files of a comparison. None is replaced before all are written: whatever fails meanwhile
    leaves the last comparison as it was.

    Raises:
        InputError: the folder holds something else, or cannot be written.
        RunError: the disk is full.
    """
    validate_out(folder)
    files = _rendered(report)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
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


def _rendered(report: Report) -> dict[str, bytes]:
    """The content of each file; of a comparison of nothing but infinities there is no picture."""
    title = report.title
    if report.differences:
        title = f"{NOT_COMPARABLE} (--force): {title}"
    drawn = plot(report.panels, title=title)
    pictures = {f"{STEM}{ending}": content for ending, content in drawn.items()}
    texts = {
        TABLE: markdown(report, [*pictures][:1]),
        PAGE: page(report),
        # It is renamed first, as it was written last: by it the folder is known as a comparison's.
        DATA: as_csv(report),
    }
    return pictures | {name: text.encode() for name, text in texts.items()}


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes have left of files that they were writing."""
    for path in folder.iterdir():
        if (found := LEFTOVER.fullmatch(path.name)) and not _is_alive(int(found["process"])):
            path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # another user's
    return True


def _unwritable(folder: Path, error: OSError) -> InputError | RunError:
    if is_disk_full(error):
        return RunError(f"{full_disk_message(error)}; make room and try again")
    return InputError(f"{folder}: a comparison cannot be written there: {error.strerror or error}")
