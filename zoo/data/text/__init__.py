"""From a corpus to its tokens. Here: what every corpus gives, documents in three splits and a fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Corpus:
    """Documents to be read as often as wanted, none of them kept in memory.

    `documents(split)` gives them in order. `identity` is JSON and differs whenever the text may differ (files
    with their size and time, or what a generator was asked for): it spares reading the text again.
    `newline_is_word` says whether an end of line counts as a word, as WikiText has it. `split` says how the
    splits were made where the card is to say it.
    """

    name: str
    identity: list
    documents: Callable[[str], Iterator[str]]
    newline_is_word: bool = False
    split: Callable[[], str | None] = lambda: None


@dataclass(frozen=True)
class Contents:
    """A fingerprint of every document of a corpus, its split and its position, and the bytes per split."""

    fingerprint: str
    bytes: dict[str, int]


class TextChanged(InputError):
    """A corpus does not hold any more what it held a moment ago."""


def survey(corpus: Corpus, on_bytes: Callable[[int], Any] = lambda count: None) -> Contents:
    """Read a corpus once, from end to end; `on_bytes` is called with the size of every document."""
    digest, sizes = hashlib.sha256(), dict.fromkeys(SPLITS, 0)
    for split in SPLITS:
        for document in digested(digest, split, corpus.documents(split)):
            size = len(document.encode())
            sizes[split] += size
            on_bytes(size)
    return Contents(digest.hexdigest(), sizes)


def digested(digest: Any, split: str, documents: Iterable[str]) -> Iterator[str]:
    """The documents of a split as they were, added to a digest of `hashlib` as they go by.

    After train, valid and test it is the fingerprint of the corpus.
    """
    digest.update(f"split {split}\n".encode())
    for document in documents:
        raw = document.encode()
        # The length before the text keeps "ab" + "c" and "a" + "bc" apart.
        digest.update(f"{len(raw)}\n".encode() + raw)
        yield document


def stamp(path: Path) -> list:
    """A file as `Corpus.identity` has it. Raises InputError where it has gone."""
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", where=str(path))) from None
    # The time of the last change of any kind too: `cp -p` and `rsync -t` bring another text with an old time.
    return [str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns]
