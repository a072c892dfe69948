"""What every corpus gives: documents in three splits, and a fingerprint of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zoo.errors import InputError, Problem

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Corpus:
    """Documents to be read as often as wanted, none of them kept in memory.

    `documents(split)` gives them in order. `identity` is JSON and differs whenever the text may differ (files
    with their size and time, or what a generator was asked for): it spares reading the text again.
    `newline_is_word` says whether an end of line counts as a word, as WikiText has it.
    """

    name: str
    identity: list
    documents: Callable[[str], Iterator[str]]
    newline_is_word: bool = False


@dataclass(frozen=True)
class Contents:
    """What a corpus holds: a fingerprint of every document in its split and place, and bytes per split."""

    fingerprint: str
    bytes: dict[str, int]


def survey(corpus: Corpus, on_bytes: Callable[[int], None] = lambda count: None) -> Contents:
    """Read a corpus once, from end to end; `on_bytes` hears of every document."""
    digest = hashlib.sha256()
    sizes = {}
    for split in SPLITS:
        sizes[split] = 0
        digest.update(f"split {split}\n".encode())
        for document in corpus.documents(split):
            raw = document.encode()
            # The length before the text keeps "ab" + "c" and "a" + "bc" apart.
            digest.update(f"{len(raw)}\n".encode())
            digest.update(raw)
            sizes[split] += len(raw)
            on_bytes(len(raw))
    return Contents(digest.hexdigest(), sizes)


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file with their ends as they are; a byte order mark at its start is left out.

    Raises InputError that names the file and the byte where it is not UTF-8.
    """
    offset = 0
    try:
        with open(path, "rb") as file:
            for raw in file:
                try:
                    line = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise InputError(
                        Problem(
                            f"byte {offset + error.start} (0x{raw[error.start]:02x}) is not UTF-8 text; "
                            "save the file as UTF-8",
                            where=str(path),
                        )
                    ) from None
                yield line.removeprefix("\ufeff") if offset == 0 else line
                offset += len(raw)
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", where=str(path))) from None


def stamp(path: Path) -> list:
    """A file as `Corpus.identity` has it."""
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]
