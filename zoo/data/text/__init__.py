"""From a corpus to its tokens. Here: documents in three splits, which every corpus gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from zoo.console import byte_bar
from zoo.errors import InputError, Problem

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Corpus:
    """Documents that can be read any number of times and are not kept in memory.

    `documents(split)` gives them in order. `identity` is JSON that differs where the text may differ: files
    with size and times, or the options of a generator. With `newline_is_word` each end of line counts as a
    word, as in WikiText. `split()` states for the card how the splits were made, if that needs a note, and
    `rule` for the user, if it has none. `size()` is the bytes of the text, where these are known before it is
    tokenized. `unsplit()` gives the documents of all splits in the order of the files, if these have another
    one. `files` is their number, if it has any. A corpus in tokens has no documents:
    `index(splits, tokenizer, path, bar, digest)` writes what `TokenStream(path)` reads, and returns its size.
    """

    name: str
    identity: list
    documents: Callable[[str], Iterator[str]]
    newline_is_word: bool = False
    split: Callable[[], str | None] = lambda: None
    size: Callable[[], int | None] = lambda: None
    unsplit: Callable[[], Iterator[str]] | None = None
    files: int = 0
    rule: str = "in its own splits"
    index: Callable[..., int] | None = None

    def whole(self) -> Corpus:
        """The same documents in one split, `valid`, for a text that is only scored."""

        def documents(split: str) -> Iterator[str]:
            if split != "valid":
                return iter(())
            return self.unsplit() if self.unsplit else chain.from_iterable(map(self.documents, SPLITS))

        def index(splits: Sequence[str], *more: Any) -> int:
            return self.index(SPLITS if "valid" in splits else (), *more)

        changes = {"identity": [*self.identity, "all"], "documents": documents, "rule": "all scored"}
        return replace(self, **changes, split=lambda: None, index=self.index and index)


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
