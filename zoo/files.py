"""Writing files atomically, reading small files, and errors of full disks."""

from __future__ import annotations

import errno
import json
import os
import shutil
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
    """Write a file that is either the old one or the complete new one.

    Raises DiskFull, or another OSError where it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    with atomic_file(path, len(raw)) as file:
        file.write(raw)


@contextmanager
def atomic_file(path: Path, size: int = 0) -> Iterator[IO[bytes]]:
    """A temporary file that is flushed and renamed to `path` after the block; an error leaves `path` alone.

    `size` is the number of bytes, if known, for the message of DiskFull.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with raise_disk_full(path, size), temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        fsync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def made_complete(folder: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to `folder` after the block, and removed after an error.

    Raises InputError if it cannot be made, DiskFull if its content does not fit.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    except OSError as error:
        if is_disk_full(error):
            raise
        raise InputError(Problem(f"cannot be written: {error.strerror}", where=str(folder))) from error
    try:
        with raise_disk_full(folder):
            yield temporary
            fsync_tree(temporary)
            os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def raise_disk_full(path: Path, size: int = 0) -> Iterator[None]:
    """Turn an error that means a full disk into a DiskFull of `path`, which needs `size` bytes."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, DiskFull) or not is_disk_full(error):
            raise
        raise DiskFull(path, size, getattr(error, "errno", None) or errno.ENOSPC) from error


def is_disk_full(error: BaseException) -> bool:
    """Whether an error or one of its causes means a full disk or quota: the writer of torch raises another
    error, with the reason in its context."""
    return _full_disk_in(error) is not None


def full_disk_message(error: BaseException, folder: Path | None = None) -> str:
    """The file that could not be written, its size and the free space; `folder` replaces an unknown path."""
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
    """`512 bytes`, `1.4 MB`."""
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.{0 if unit == 'bytes' else 1}f} {unit}"


def fsync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, so that a rename outlives a power failure."""
    with suppress(OSError):  # Windows, and file systems that cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def fsync_tree(folder: Path) -> None:
    """Write everything below a folder to the disk, before the folder is renamed. Raises OSError."""
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


def read_bytes(file: Path, limit: int) -> bytes:
    """The content of a file. Raises InputError if it cannot be read, or is larger than `limit` bytes."""
    try:
        if file.stat().st_size > limit:
            size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
            raise InputError(Problem(f"cannot be read: larger than {size}", where=str(file)))
        return file.read_bytes()
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", where=str(file))) from error


def read_text(file: Path, limit: int, advice: str = "") -> str:
    """The text of a UTF-8 file, with or without a byte order mark.

    `advice` ends the message about another encoding.

    Raises InputError as `read_bytes` does, or with the line that is not UTF-8.
    """
    raw = read_bytes(file, limit)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(Problem(f"is not UTF-8 text{advice}", where=f"{file}:{line}")) from error


def read_json(file: Path, limit: int = MAX_BYTES, advice: str = "") -> Any:
    """The value in a JSON file; NaN and Infinity become None. `advice` ends the message about a broken file.

    Raises InputError where it cannot be read, with the line.
    """
    text = read_text(file, limit, advice)
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except json.JSONDecodeError as error:
        message = f"cannot be read: it is not JSON: {error.msg}{advice}"
        raise InputError(Problem(message, where=f"{file}:{error.lineno}")) from error
