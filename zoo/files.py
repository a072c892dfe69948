"""Files and folders that are written completely or not at all, errors of full disks, small files."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from zoo.errors import InputError, Problem


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a file that is either the old one or the complete new one.

    Raises OSError with the file's name where it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


def _temporary(path: Path) -> Path:
    """A new name beside `path`. In a container all processes may have the same id."""
    return path.with_name(f".{path.name}.{secrets.randbits(48)}")


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file that is flushed and renamed to `path` after the block; an error leaves it alone."""
    temporary = _temporary(path)
    try:
        with raise_disk_full(path), temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        fsync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that is flushed and renamed to `folder` after the block, and removed after an error.

    Raises InputError if it cannot be made, OSError if its content does not fit.
    """
    temporary = _temporary(folder)
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise InputError(Problem(f"cannot be written: {error.strerror}", where=str(folder))) from error
    try:
        with raise_disk_full(folder):
            yield temporary
            for path in sorted(temporary.rglob("*")):
                if path.is_dir():
                    fsync_folder(path)
                else:
                    with raise_disk_full(path), path.open("rb+") as file:
                        os.fsync(file.fileno())
            fsync_folder(temporary)
            os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def raise_disk_full(path: Path) -> Iterator[None]:
    """Turn an error that means a full disk into an OSError that names `path`."""
    try:
        yield
    except Exception as error:
        if getattr(error, "filename", None) or not is_disk_full(error):
            raise
        number = getattr(error, "errno", None) or errno.ENOSPC
        raise OSError(number, os.strerror(number), str(path)) from error


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error or one of its causes means a full disk or quota.

    The writer of torch raises another error, with the reason in its context; `tokenizers` keeps the words of
    the system and loses the number.
    """
    if error is None:
        return False
    numbers = (errno.ENOSPC, errno.EDQUOT)
    if getattr(error, "errno", None) in numbers or any(os.strerror(one) in str(error) for one in numbers):
        return True
    return is_disk_full(error.__cause__ or error.__context__)


def fsync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, so that a rename outlives a power failure."""
    with suppress(OSError):  # Windows, and file systems that cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def shortest(path: str | Path) -> str:
    """A path in full, or relative to the working directory where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def file_sha256(path: Path) -> str:
    """The SHA-256 digest of a file, as hexadecimal text."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text(file: Path, advice: str = "") -> str:
    """The text of a UTF-8 file, with or without a byte order mark.

    `advice` ends the message about another encoding.

    Raises InputError if it cannot be read, or with the line that is not UTF-8.
    """
    try:
        raw = file.read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", where=str(file))) from error
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(Problem(f"is not UTF-8 text{advice}", where=f"{file}:{line}")) from error


def read_json(file: Path, advice: str = "") -> Any:
    """The value in a JSON file; NaN and Infinity become None. `advice` ends the message about a broken file.

    Raises InputError where it cannot be read, with the line.
    """
    text = read_text(file, advice)
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except json.JSONDecodeError as error:
        message = f"cannot be read: it is not JSON: {error.msg}{advice}"
        raise InputError(Problem(message, where=f"{file}:{error.lineno}")) from error
