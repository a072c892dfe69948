"""Files that are whole, whatever happens while they are written, and disks that are full."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

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


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that is either the old one or the new one, whatever happens in between.

    Raises DiskFull, or another OSError where it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    with whole_file(path, len(raw)) as file:
        file.write(raw)


@contextmanager
def whole_file(path: Path, size: int = 0) -> Iterator[IO[bytes]]:
    """A file to be written piece by piece, which takes its place at `path` once the block has ended well.

    It is written beside, flushed and renamed; after an error what was there before is as it was.

    Args:
        size: bytes that it will have, as far as they are known; for the message when they do not fit.

    Raises:
        DiskFull: by whatever error the block has told it.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with full_disk_told(path, size), beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        sync_folder(path.parent)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def full_disk_told(path: Path, size: int = 0) -> Iterator[None]:
    """Turns every error that means a full disk into a DiskFull of `path`, which needs `size` bytes."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, DiskFull) or not is_disk_full(error):
            raise
        raise DiskFull(path, size, getattr(error, "errno", None) or errno.ENOSPC) from error


def disk_full_at(path: Path, error: BaseException) -> DiskFull:
    """The same error, of which `is_disk_full` holds, of a path that the user knows."""
    cause = _full_disk_in(error)
    return DiskFull(path, getattr(cause, "size", 0), getattr(cause, "errno", None) or errno.ENOSPC)


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
        folder: where it was to be written, as far as that is known, if the error does not tell.
    """
    cause = _full_disk_in(error)
    path = Path(cause.filename) if isinstance(cause, OSError) and cause.filename else None
    number = getattr(cause, "errno", None) or errno.ENOSPC
    where = folder if path is None else path.parent
    said = os.strerror(number).lower()
    if where is None:
        return said
    said = f"{where}: {said}"
    if (free := _free_bytes(where)) is not None:
        said += f" ({bytes_as_text(free)} free)"
    if path is None:
        return said
    size = cause.size if isinstance(cause, DiskFull) else 0
    return f"{said}: {path.name}{f' of {bytes_as_text(size)}' if size else ''} could not be written"


def bytes_as_text(count: int) -> str:
    """A number of bytes as people read it: 512 bytes, 1.4 MB."""
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.{0 if unit == 'bytes' else 1}f} {unit}"


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk itself: a rename outlives a power failure only then."""
    with suppress(OSError):  # Windows, and file systems that cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Have all that is in a folder, and below, on the disk itself: before the folder is renamed to its place.

    Raises OSError (DiskFull among them) where the disk does not take it.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            sync_folder(path)
            continue
        with full_disk_told(path, path.stat().st_size), path.open("rb+") as file:
            os.fsync(file.fileno())
    sync_folder(folder)


def _full_disk_in(error: BaseException) -> BaseException | None:
    """The error in a chain of causes that tells of a full disk; of several the one that tells most."""
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


def _free_bytes(folder: Path) -> int | None:
    """Bytes left for us where a folder is, or would be."""
    with suppress(OSError):
        return shutil.disk_usage(
            next(path for path in (folder, *folder.absolute().parents) if path.exists())
        ).free
    return None
