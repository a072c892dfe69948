"""Splits of a corpus, by their names or by a hash of each document.

Without names the documents with the smallest hashes are for validation and test, so that names and order have
no influence and equal documents are in one split. A single document is cut by position.
"""

from __future__ import annotations

import functools
import hashlib
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.text import SPLITS, Corpus, encoded
from zoo.errors import InputError, Problem, hint

HELD_OUT = 0.05  # of the documents, for validation and again for test
BY_POSITION = "by position: the first 90 % of the one document train, the next 5 % valid, the last 5 % test"
NAMED = "by the names of files or folders"
SPLIT_NAMES = {
    "train": "train", "training": "train",
    "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid", "test": "test",
}  # fmt: skip
SEARCHED = 1 << 16  # characters that are searched for a place to cut

Read = Callable[[], Iterator[str]]


def check_column(names: list[str] | None, column: str, where: Path | str) -> None:
    """Raise InputError where a table has no such column."""
    if column not in (names or ()):
        message = f"no column {column!r}; {hint(column, (names or ['none'])[:20])}"
        raise InputError(Problem(message, key="data.column", where=str(where)))


def text_of(value: object, column: str, where: Path | str) -> str:
    """The text of a record, empty if it is blank. Raises InputError for a value that is not text."""
    if not isinstance(value, str | None):
        message = f"column {column!r} has {type(value).__name__} and not text"
        raise InputError(Problem(message, "data.column", str(where)))
    return value if value and value.strip() else ""


def text_of_rows(table: Any, column: str, where: Path | str) -> Iterator[str]:
    """The texts of a table of `datasets`, without blank ones."""
    for batch in table.select_columns([column]).iter(64):
        for value in batch[column]:
            if text := text_of(value, column, where):
                yield text


def from_tables(name: str, identity: list, loaded: Any, column: str, where: Path | str) -> Corpus:
    """A corpus of what `datasets` loaded, by the names of its splits; a single one is divided among all.

    Raises:
        InputError: a split has no such column, or no split is named train.
    """
    tables = loaded if isinstance(loaded, dict) else {"train": loaded}
    for table in tables.values():
        check_column(table.column_names, column, where)

    def read(one: str) -> Iterator[str]:
        return text_of_rows(tables[one], column, where) if one in tables else iter(())

    ours = {SPLIT_NAMES[key.lower()]: key for key in tables if key.lower() in SPLIT_NAMES}
    if {"train", "valid"} <= set(ours):
        return Corpus(name, identity, lambda split: read(ours.get(split, "")), split=lambda: NAMED)
    if len(tables) == 1:
        return split_by_hash(name, identity, lambda: read(next(iter(tables))), where)
    if "train" not in ours:
        message = f"has the splits {', '.join(tables)}; it needs train, or one split alone"
        raise InputError(Problem(message, key="data.root", where=str(where)))
    # Validation is taken out of train, and test stays test.
    divided = split_by_hash(name, identity, lambda: read(ours["train"]), where, test=False)

    if "test" not in ours:
        return divided

    def documents(split: str) -> Iterator[str]:
        return read(ours["test"]) if split == "test" else divided.documents(split)

    def mixed() -> Iterator[tuple[str, str]]:
        yield from divided.all_documents()
        yield from (("test", document) for document in read(ours["test"]))

    return replace(divided, documents=documents, mixed=mixed, size=lambda: None)


def split_by_hash(name: str, identity: list, read: Read, where: Path | str, test: bool = True) -> Corpus:
    """A corpus whose documents are divided among the splits by their hash; a single one is cut by position.

    Args:
        read: gives all documents, in the same order at every call.
        where: the origin, for messages.
        test: whether there is a test split.
    """

    @functools.cache
    def counted() -> tuple[np.ndarray | None, int]:
        hashes, size = array("Q"), 0
        for raw in encoded(read(), name):
            hashes.append(int.from_bytes(hashlib.sha256(raw).digest()[:8], "big"))
            size += len(raw)
        return assign(np.array(hashes, np.uint64), where, test), size

    def mixed() -> Iterator[tuple[str, str]]:
        codes, _ = counted()
        if codes is None:
            yield from cut_by_position(next(read()), where).items()
            return
        # A text that changed in between is refused by the token cache.
        for document, code in zip(read(), codes, strict=False):
            yield SPLITS[code], document

    return Corpus(
        name,
        identity,
        lambda split: (document for one, document in mixed() if one == split),
        split=lambda: BY_POSITION if counted()[0] is None else None,
        mixed=mixed,
        size=lambda: counted()[1],
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
