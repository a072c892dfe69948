"""Writing files atomically, reading files of unknown origin within limits, and errors of full disks."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from zoo.errors import InputError, Problem

FULL = {errno.ENOSPC, errno.EDQUOT}
# `tokenizers` and others keep the words of the system and lose its number.
FULL_WORDS = ("No space left on device", "Disk quota exceeded")


class DiskFull(OSError):
    """A file did not fit on its disk. `filename` is its path, `size` how many bytes it needs at least."""

    def __init__(self, path: Path, size: int, number: int = errno.ENOSPC):
        super().__init__(number, os.strerror(number), str(path))
        self.size = size

    def __reduce__(self) -> tuple[object, ...]:
        # What a loader's process raises goes to the main one by pickle.
        return DiskFull, (Path(self.filename), self.size, self.errno)


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a file that is either the old one or the new one, whatever happens in between.

    Raises DiskFull, or another OSError where it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    with atomic_file(path, len(raw)) as file:
        file.write(raw)


@contextmanager
def atomic_file(path: Path, size: int = 0) -> Iterator[IO[bytes]]:
    """A file to be written piece by piece, which is renamed to `path` once the block has ended well.

    It is written beside, flushed and renamed; after an error what was there before is as it was.

    Args:
        size: bytes that it will have, as far as they are known; for the message when they do not fit.

    Raises:
        DiskFull: whatever error the block raised for it.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with raise_disk_full(path, size), beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        fsync_folder(path.parent)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def made_complete(folder: Path) -> Iterator[Path]:
    """A new folder to write into, which gets its name once the block has ended well, and else is gone.

    Args:
        folder: its name; not there yet, or empty.

    Raises:
        InputError: it cannot be made.
        DiskFull: whatever error the block raised for it.
    """
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside.mkdir()
    except OSError as error:
        if is_disk_full(error):
            raise
        raise InputError(Problem(f"cannot be written: {error.strerror}", where=str(folder))) from error
    try:
        with raise_disk_full(folder):
            yield beside
            fsync_tree(beside)
            os.rename(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def raise_disk_full(path: Path, size: int = 0) -> Iterator[None]:
    """Turns every error that means a full disk into a DiskFull of `path`, which needs `size` bytes."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, DiskFull) or not is_disk_full(error):
            raise
        raise DiskFull(path, size, getattr(error, "errno", None) or errno.ENOSPC) from error


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, or one that it came from, says that a disk or a quota is full.

    torch's writer, for one, stumbles over what is missing in the file, and only the context of its error has
    the reason.
    """
    return _full_disk_in(error) is not None


def full_disk_message(error: BaseException, folder: Path | None = None) -> str:
    """What could not be written, how much it needs and how much there is.

    Args:
        error: of which `is_disk_full` holds.
        folder: where it was to be written, as far as that is known, if the error does not name it.
    """
    cause = _full_disk_in(error)
    path = Path(cause.filename) if isinstance(cause, OSError) and cause.filename else None
    where = folder if path is None else path.parent
    message = os.strerror(getattr(cause, "errno", None) or errno.ENOSPC).lower()
    if where is None:
        return message
    with suppress(OSError):
        nearest = next(one for one in (where, *where.absolute().parents) if one.exists())
        message += f" ({format_bytes(shutil.disk_usage(nearest).free)} free)"
    size = f" of {format_bytes(cause.size)}" if isinstance(cause, DiskFull) and cause.size else ""
    what = f": {path.name}{size} could not be written" if path else ""
    return f"{where}: {message}{what}"


def format_bytes(count: int) -> str:
    """A number of bytes as people read it: 512 bytes, 1.4 MB."""
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.{0 if unit == 'bytes' else 1}f} {unit}"


def fsync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk itself: a rename outlives a power failure only then."""
    with suppress(OSError):  # Windows, and file systems that cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def fsync_tree(folder: Path) -> None:
    """Have all that is in a folder, and below, on the disk itself: before the folder is renamed.

    Raises OSError (DiskFull among them) where the disk does not take it.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            fsync_folder(path)
            continue
        with raise_disk_full(path, path.stat().st_size), path.open("rb+") as file:
            os.fsync(file.fileno())
    fsync_folder(folder)


def _full_disk_in(error: BaseException) -> BaseException | None:
    """The error in a chain of causes that means a full disk; of several the most specific."""
    found, seen, ahead = [], set(), [error]
    while ahead:
        one = ahead.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if (isinstance(one, OSError) and one.errno in FULL) or any(word in str(one) for word in FULL_WORDS):
            found.append(one)
        ahead += [one.__context__, one.__cause__]
    return max(found, key=lambda one: isinstance(one, DiskFull), default=None)


MAX_BYTES = 16 << 20
MAX_DEPTH = 32
MAX_DIGITS = 19
"""Of a whole number: more do not fit into 64 bits."""

# What a terminal would act upon instead of showing it, and halves of characters, which no file can hold.
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def control_character(text: str) -> str | None:
    """The first character of a text that is none to be read, as `U+001B`; None where all are."""
    found = _NO_TEXT.search(text)
    return None if found is None else f"U+{ord(found[0]):04X}"


def read_bytes(file: Path, limit: int) -> bytes:
    """The content of an ordinary file.

    Raises:
        InputError: none of `limit` bytes or fewer can be read there; a pipe or device is not waited for.
    """
    where = str(file)
    try:
        # Without O_NONBLOCK the opening of a pipe waits for somebody who writes into it.
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InputError(Problem("cannot be read: it is no ordinary file", where=where))
            raw = opened.read(limit + 1)
    except IsADirectoryError as error:
        raise InputError(Problem("cannot be read: it is a folder", where=where)) from error
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: no name that a file can have
        cause = getattr(error, "strerror", None) or error
        raise InputError(Problem(f"cannot be read: {cause}", where=where)) from error
    if len(raw) > limit:
        size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
        raise InputError(Problem(f"cannot be read: larger than {size}", where=where))
    return raw


def read_text(file: Path, limit: int, advice: str = "") -> str:
    """The text of an ordinary file in UTF-8, with or without a byte order mark.

    `advice` is what to do about one that holds something else.

    Raises:
        InputError: as `read_bytes`, or it is not UTF-8, with the line.
    """
    raw = read_bytes(file, limit)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(Problem(f"is not UTF-8 text{advice}", where=f"{file}:{line}")) from error


def read_json(file: Path, limit: int = MAX_BYTES, advice: str = "") -> Any:
    """What a JSON file holds. Numbers that are none (NaN, or beyond what a float holds) are None.

    `advice` is what to do about one that holds something else.

    Raises:
        InputError: it cannot be read, or holds what the zoo never writes: values nested deeper than
            MAX_DEPTH, whole numbers beyond 64 bits, control characters; with the line where there is one.
    """
    text = read_text(file, limit, advice)
    where = str(file)
    try:
        value = json.loads(text, parse_constant=lambda _: None, parse_float=_finite, parse_int=_whole)
        character = control_character("".join(_texts(value)))
        if character is None:
            return value
        fault = f"a control character ({character}) in it"
    except json.JSONDecodeError as error:
        where, fault = f"{file}:{error.lineno}", f"it is not JSON: {error.msg}"
    except RecursionError:
        fault = "nested too deeply"
    except ValueError as error:
        fault = str(error)
    raise InputError(Problem(f"cannot be read: {fault}{advice}", where=where))


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"a whole number of {len(text.lstrip('-'))} digits in it")
    return int(text)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Every text and key in what a JSON file holds. Raises RecursionError beyond MAX_DEPTH."""
    if depth >= MAX_DEPTH:
        raise RecursionError
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _texts(inner, depth + 1)
