"""Checksums of files: whether they are still what was written, and which were verified before.

CRC-32 is no defence against forgery, and finds every flipped bit and cut file; it is read several times as
fast as a cryptographic hash. A corpus of 20 GB is not read at every start all the same: a file that was
compared in its present state (size, times, inode) is taken to be intact.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from zoo.files import atomic_write

CHUNK = 4 << 20
# A write within one tick of the file system's clock leaves a file's times as they are: only what has been
# left alone for a while can be known by them.
SETTLED = 2_000_000_000  # nanoseconds

Checksums = dict[str, list[int]]
"""Size and CRC-32 of files, by their path in the folder, with slashes."""


class Damaged(Exception):
    """Files are not what they were when they were written; says which, and in what."""


def checksums(folder: Path) -> Checksums:
    """Size and CRC-32 of every file in a folder and below."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): [path.stat().st_size, crc32(path)] for path in files}


def crc32(path: Path, on_bytes: Callable[[int], object] = lambda count: None) -> int:
    """CRC-32 of a file's content; `on_bytes` is called with the size of every piece."""
    value = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(CHUNK):
            value = zlib.crc32(piece, value)
            on_bytes(len(piece))
    return value


def validate_sizes(folder: Path, recorded: Mapping[str, list[int]]) -> None:
    """Raises Damaged where files are missing or of another size, which takes no reading."""
    problems = []
    for name, (size, _) in recorded.items():
        try:
            found = (folder / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            problems.append(f"{name} is missing")
            continue
        if found != size:
            problems.append(f"{name} has {found} bytes and not {size}")
    _raise(problems)


def unverified(folder: Path, recorded: Mapping[str, list[int]], note: Path) -> dict[str, int]:
    """The files, with their sizes, that were not compared in their present state, as the note has it."""
    known = _read(note)
    return {
        name: size
        for name, (size, crc) in recorded.items()
        if known.get(name) != [crc, *_state(folder / name)]
    }  # fmt: skip


def compare(
    folder: Path,
    recorded: Mapping[str, list[int]],
    names: Mapping[str, int],
    note: Path,
    on_bytes: Callable[[int], object],
) -> None:
    """Read files and compare their checksums; note those that are as they were.

    A note that cannot be written, as in a cache that is shared and read-only, is none: the files are then
    read at every start. Raises Damaged with all that differ.
    """
    known = {name: state for name, state in _read(note).items() if name in recorded}
    problems = []
    for name in names:
        # Taken before: a write while it is read must not pass for what was compared.
        state, crc = _state(folder / name), recorded[name][1]
        known.pop(name, None)
        if crc32(folder / name, on_bytes) != crc:
            problems.append(f"{name} has another content (checksum)")
        elif _is_settled(state) and state == _state(folder / name):
            known[name] = [crc, *state]
    with suppress(OSError):
        atomic_write(note, json.dumps(known, indent=1) + "\n")
    _raise(problems)


def _raise(problems: list[str]) -> None:
    if problems:
        more = [f"{len(problems) - 3} more"] if len(problems) > 4 else []
        raise Damaged(", ".join([*problems[: 3 if more else 4], *more]))


def _read(note: Path) -> dict[str, list[int]]:
    with suppress(OSError, ValueError, RecursionError):
        known = json.loads(note.read_text(encoding="utf-8"))
        if isinstance(known, dict):
            return known
    return {}


def _state(file: Path) -> list[int]:
    """What changes whenever a file is written or replaced."""
    status = os.stat(file)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _is_settled(state: list[int]) -> bool:
    return time.time_ns() - max(state[1:3]) > SETTLED
