"""From a corpus to its tokens. Here: documents in three splits, which every corpus gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zoo.console import byte_bar
from zoo.errors import InputError, Problem

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Corpus:
    """Documents that can be read any number of times and are not kept in memory.

    `documents(split)` gives them in order. `identity` is JSON that differs where the text may differ: files
    with size and times, or the options of a generator. With `newline_is_word` each end of line counts as a
    word, as in WikiText. `split()` states for the card how the splits were made, if that needs a note.
    `mixed()` gives the documents of all splits, each after its split, where reading one split reads them all.
    `size()` is the bytes of the text, where these are known before it is tokenized.
    """

    name: str
    identity: list
    documents: Callable[[str], Iterator[str]]
    newline_is_word: bool = False
    split: Callable[[], str | None] = lambda: None
    mixed: Callable[[], Iterator[tuple[str, str]]] | None = None
    size: Callable[[], int | None] = lambda: None

    def all_documents(self) -> Iterator[tuple[str, str]]:
        """The documents of all splits in one reading, each after its split; those of a split in order."""
        if self.mixed is not None:
            return self.mixed()
        return ((split, document) for split in SPLITS for document in self.documents(split))


def stamp(path: Path) -> list:
    """A file as part of `Corpus.identity`. Raises InputError for one that cannot be read."""
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", where=str(path))) from None
    # The ctime too: `cp -p` and `rsync -t` replace a text and keep the old mtime.
    return [str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def encoded(documents: Iterable[str], name: str) -> Iterator[bytes]:
    """The documents of a corpus in UTF-8, with a progress bar."""
    with byte_bar(f"reading {name}") as bar:
        for document in documents:
            raw = document.encode()
            bar.update(len(raw))
            yield raw
