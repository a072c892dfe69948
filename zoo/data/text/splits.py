"""Splits of a corpus, by their names or by a hash of each document.

Without names the documents with the smallest hashes are for validation and test, so that names and order have
no influence and equal documents are in one split. A single document is cut by position.
"""

from __future__ import annotations

import functools
import hashlib
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.text import SPLITS, Corpus, encoded
from zoo.errors import InputError, Problem, hint

HELD_OUT = 0.05  # of the documents, for validation and again for test
BY_POSITION = "by position: the first 90 % of the one document train, the next 5 % valid, the last 5 % test"
BY_POSITION_BUT_TEST = "by position: the first 90 % of the one document train, the rest valid"
NAMED = "by the names of files or folders"
BY_HASH = "by a hash of each document"
SEARCHED = 1 << 16  # characters that are searched for a place to cut

Read = Callable[[], Iterator[str]]


@functools.cache
def split_names() -> dict[str, str]:
    """The split that each name means, as `datasets` reads it: `validation`, `dev` and `val` are `valid`."""
    from datasets.data_files import SPLIT_KEYWORDS

    return {word: ours for ours, words in zip(SPLITS, SPLIT_KEYWORDS.values(), strict=True) for word in words}


def words_of_name(name: str) -> list[str]:
    """The words between the separators of `datasets` (white space, punctuation, digits), in lower case."""
    from datasets.data_files import NON_WORDS_CHARS

    return [word for word in re.split(f"[{NON_WORDS_CHARS}]+", name.lower()) if word]


def check_column(names: list[str] | None, column: str, where: Path | str) -> None:
    """Raise InputError unless a table has one such column."""
    if (count := (names or []).count(column)) != 1:
        message = f"no column {column!r}; {hint(column, (names or ['none'])[:20])}"
        message = f"{count} columns {column!r}; rename all but one" if count else message
        raise InputError(Problem(message, key="data.column", where=str(where)))


def text_of(value: object, column: str, where: Path | str) -> str:
    """The text of a record, empty if it is blank. Raises InputError for a value that is not text."""
    if not isinstance(value, str | None):
        message = f"column {column!r} has {type(value).__name__} and not text"
        raise InputError(Problem(message, "data.column", str(where)))
    return value if value and value.strip() else ""


def from_tables(
    name: str, identity: list, loaded: Any, column: str, where: Path | str, files: int = 0
) -> Corpus:
    """A corpus of what `datasets` loaded. Raises InputError where a split has no such column."""
    tables = loaded if isinstance(loaded, dict) else {"train": loaded}

    def read(table: Any) -> Iterator[str]:
        for batch in table.select_columns([column]).iter(64):
            for value in batch[column]:
                if text := text_of(value, column, where):
                    yield text

    for table in tables.values():
        check_column(table.column_names, column, where)
    return from_parts(name, identity, {key: partial(read, one) for key, one in tables.items()}, where, files)


def from_parts(
    name: str, identity: list, parts: Mapping[str, Read], where: Path | str, files: int = 0
) -> Corpus:
    """A corpus in parts by the names of splits; a single one is divided among all.

    Documents raise InputError where there are several parts, and none is named train.
    """
    ours: dict[str, Read] = {}
    for key, read in parts.items():
        if split := split_names().get(key.lower()):
            ours.setdefault(split, read)
    if {"train", "valid"} <= ours.keys():

        def documents(split: str) -> Iterator[str]:
            return ours[split]() if split in ours else iter(())

        return Corpus(name, identity, documents, split=lambda: NAMED, files=files)
    if len(parts) == 1:
        return split_by_hash(name, identity, next(iter(parts.values())), where, None, files)
    if "train" in ours:
        test = ours.get("test", lambda: iter(()))
        return split_by_hash(name, identity, ours["train"], where, test, files)

    message = f"has the splits {', '.join(parts)}; it needs train, or one split alone"
    error = InputError(Problem(message, key="data.root", where=str(where)))
    return without_splits(
        name, identity, error, lambda: chain.from_iterable(read() for read in parts.values()), files
    )


def without_splits(name: str, identity: list, error: InputError, unsplit: Read, files: int) -> Corpus:
    """A corpus that can only be scored as a whole; for a split it raises the error."""

    def documents(split: str) -> Iterator[str]:
        raise error

    return Corpus(name, identity, documents, unsplit=unsplit, files=files)


def split_by_hash(
    name: str, identity: list, read: Read, where: Path | str, test: Read | None = None, files: int = 0
) -> Corpus:
    """A corpus whose documents are divided among the splits by their hash; a single one is cut by position.

    Args:
        read: gives the documents, in the same order at every call.
        where: the origin, for messages.
        test: gives the documents for test, where these are named; the others are then train and validation.
    """

    @functools.cache
    def counted() -> tuple[np.ndarray | None, int]:
        hashes, size = array("Q"), 0
        for raw in encoded(read(), name):
            hashes.append(int.from_bytes(hashlib.sha256(raw).digest()[:8], "big"))
            size += len(raw)
        return assign(np.array(hashes, np.uint64), where, test is None), size

    def documents(split: str) -> Iterator[str]:
        if split == "test" and test is not None:
            return test()
        codes, _ = counted()
        if codes is None:
            parts = cut_by_position(next(read()), where)
            return iter([parts[split] + (parts["test"] if test and split == "valid" else "")])
        # A text that changed in between is refused by the token cache.
        return (one for one, code in zip(read(), codes, strict=False) if SPLITS[code] == split)

    return Corpus(
        name,
        identity,
        documents,
        split=lambda: (BY_POSITION_BUT_TEST if test else BY_POSITION) if counted()[0] is None else None,
        size=lambda: counted()[1] if test is None else None,
        unsplit=lambda: chain(read(), test() if test else ()),
        files=files,
        rule=BY_HASH if test is None else f"test {NAMED}, the rest {BY_HASH}",
    )


def assign(hashes: np.ndarray, where: Path | str, test: bool = True) -> np.ndarray | None:
    """The number of its split for each document, uint8; None where all documents are equal. Raises InputError
    if there is none."""
    order = np.unique(hashes)
    if not len(order):
        raise InputError(Problem("holds no text", key="data.root", where=str(where)))
    if len(order) == 1:
        return None
    held_out = max(1, round(len(order) * HELD_OUT))
    codes = np.zeros(len(hashes), np.uint8)
    if test and len(order) >= 3:
        codes[hashes <= order[2 * held_out - 1]] = SPLITS.index("test")
    codes[hashes <= order[held_out - 1]] = SPLITS.index("valid")
    return codes


def cut_by_position(document: str, where: Path | str) -> dict[str, str]:
    """The splits of a single document: 90, 5 and 5 % of its characters, cut at the next end of a line, or of
    a word where there is none near. Raises InputError for one that is too short."""
    cuts = [0]
    for share in (1 - 2 * HELD_OUT, 1 - HELD_OUT):
        start = max(cuts[-1], round(len(document) * share))
        ahead = document[start : start + SEARCHED]
        border = re.search(r"\n", ahead) or re.search(r"\s", ahead)
        cuts.append(start + (border.end() if border else len(ahead)))
    cuts.append(len(document))
    parts = {split: document[a:b] for split, a, b in zip(SPLITS, cuts, cuts[1:], strict=False)}
    if not (parts["train"].strip() and parts["valid"].strip()):
        message = (
            "holds only one document, too short to be cut into splits; write more documents, one per .txt, "
            "with lines <|endoftext|> between, or into a .jsonl"
        )
        raise InputError(Problem(message, key="data.root", where=str(where)))
    return parts
