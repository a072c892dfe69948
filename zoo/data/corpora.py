"""A corpus by its name: documents, in three splits."""

from __future__ import annotations

import hashlib
import os
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


def open_corpus(data) -> Corpus:
    """The corpus that the recipe's `data` section names.

    Raises InputError where it cannot be had. WikiText that is not on disk is fetched only when it is first
    read.
    """
    root = Path(data.root) if getattr(data, "root", None) else None
    if data.name in ("wikitext-2", "wikitext-103"):
        from zoo.data.wikitext import open_wikitext

        return open_wikitext(data.name, root or default_root())
    if data.name == "text":
        from zoo.data.plain_text import open_text

        if root is None:
            raise InputError(Problem("say which folder or file of plain text to read", key="data.root"))
        return open_text(root)
    if data.name == "sample":
        from zoo.data.sample import open_sample

        return open_sample(data.documents, data.words, data.corpus_seed)
    raise InputError(Problem(f"no corpus is called {data.name!r}", key="data.name"))


def default_root() -> Path:
    """Where corpora are looked for when the recipe does not say: ZOO_DATA, or `data/`."""
    return Path(os.environ.get("ZOO_DATA") or "data")


def default_cache() -> Path:
    """Where tokens are kept when the recipe does not say."""
    return default_root() / "cache"


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
