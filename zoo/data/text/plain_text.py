"""Anybody's text: a file, a folder of files, or what `datasets` has saved.

A plain text file is a document, unless lines `<|endoftext|>` cut it into several; a record of any other
format is one. Splits are as files, folders or saved splits are named (train, validation, test). Where these
are not, they are made of complete documents, chosen by a hash of their text: neither names nor order decide,
and two equal documents are never on two sides. A single document is cut by position. Files of formats that
are not read are refused before they are read: their syntax would be trained on as if it were text.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.text import SPLITS, Corpus, TextChanged, stamp
from zoo.data.text.records import COMPRESSED, PLAIN, READ, SEPARATOR, format_of, open_bytes, read_documents
from zoo.errors import InputError, Problem, nearest, printable
from zoo.launch.ranks import is_first_process

HELD_OUT = 0.05  # of the documents, for validation and again for test
BY_POSITION = "by position: the first 90 % of the one document train, the next 5 % valid, the last 5 % test"
NAMED = "by the names of files or folders"

RECORDS = [".arrow", ".avro", ".feather", ".orc"]
MARKUP = [".doc", ".docx", ".epub", ".htm", ".html", ".odt", ".pdf", ".rtf", ".xls", ".xlsx", ".xml"]
PACKED = [".7z", ".lz4", ".rar", ".tar", ".tgz", ".zip"]
OTHER_FORMATS = frozenset([*RECORDS, *MARKUP, *PACKED])
"""Ends of names, in lower case. What has another one, or none, may be text."""
ADVICE = f"write the text into .txt files, one a document or with lines {SEPARATOR} between, or into .jsonl"
HEAD = 1 << 16
"""Bytes at the beginning of a file that are looked at."""
JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*"[^"\n]*"\s*:')
"""How JSON begins, of one record or of a list of them."""
SPLIT_NAMES = {
    "train": "train", "training": "train",
    "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid", "test": "test",
}  # fmt: skip
SPLIT_NAME = re.compile(rf"({'|'.join(SPLIT_NAMES)})(?![a-z])", re.IGNORECASE)
SAVED = ("dataset_dict.json", "state.json")
"""What `save_to_disk` of `datasets` leaves in its folder: of several splits, and of one."""

Read = Callable[[], Iterator[str]]


def open_text(root: Path, column: str = "text") -> Corpus:
    """The corpus that `root` holds.

    Where no names of splits are given: 90 % of the documents train, 5 % valid, 5 % test; at least one is in
    valid, and one in test where there are three.

    Args:
        column: where records have their text.

    Raises:
        InputError: no text there, a file of a format that is not read, no such column, a line that is not of
            its format, or bytes that are not UTF-8.
    """
    if any((root / name).is_file() for name in SAVED):
        return _saved(root, column)
    files = find_files(root)
    problems = [
        Problem(f"{why}; {ADVICE}", key="data.root", where=str(file))
        for file in files
        if (why := _why_no_text(file))
    ]
    if problems:
        raise InputError(problems)
    identity = ["text", HELD_OUT, column, *map(stamp, files)]

    def read(some: Iterable[Path]) -> Iterator[str]:
        for file in some:
            yield from read_documents(file, column)

    named = {} if root.is_file() else _named_splits(root, files)
    if named:
        return Corpus("text", identity, lambda split: read(named.get(split, ())), split=lambda: NAMED)
    return split_by_hash("text", identity, lambda: read(files), root)


def split_by_hash(name: str, identity: list, read: Read, where: Path | str, test: bool = True) -> Corpus:
    """A corpus whose documents are dealt to the splits; a single one is cut by position.

    Args:
        read: gives all documents, in the same order whenever it is called.
        where: it comes from, for messages.
        test: whether there is a test split.
    """

    @functools.cache
    def assignment() -> tuple[array, np.ndarray | None]:
        # Nine bytes a document: a corpus may have many millions.
        fingerprints = array("Q", map(_fingerprint, read()))
        return fingerprints, assign(np.asarray(fingerprints), where, test)

    def documents(split: str) -> Iterator[str]:
        fingerprints, codes = assignment()
        if codes is None:
            yield cut_by_position(next(read()), where)[split]
            return
        for number, document in enumerate(read()):
            if number == len(fingerprints) or fingerprints[number] != _fingerprint(document):
                raise TextChanged(Problem("the text changed while it was read; run again", where=str(where)))
            if codes[number] == SPLITS.index(split):
                yield document

    return Corpus(name, identity, documents, split=lambda: BY_POSITION if assignment()[1] is None else None)


def _saved(root: Path, column: str) -> Corpus:
    """What `save_to_disk` has written: a dataset, or one for each split."""
    import datasets

    try:
        saved = datasets.load_from_disk(str(root))
    except Exception as error:  # of many kinds
        line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise InputError(
            Problem(f"`datasets` cannot load it: {line}", key="data.root", where=str(root))
        ) from error
    files = sorted(path for path in root.rglob("*") if path.is_file())
    identity = ["saved", column, *map(stamp, files)]
    tables = saved if isinstance(saved, dict) else {"train": saved}
    return from_tables("text", identity, tables, column, root)


def from_tables(name: str, identity: list, tables: dict, column: str, where: Path | str) -> Corpus:
    """A corpus of `datasets`' tables by the names of their splits; one alone is dealt to all splits.

    Raises:
        InputError: a split has no such column, or splits that are not ours.
    """
    problems = []
    for split, table in tables.items():
        there = table.column_names or []
        if column not in there:
            near = nearest(column, there)
            hint = f"did you mean {near!r}?" if near else f"there are {', '.join(there)}"
            problems.append(
                Problem(f"split {split}: no column {column!r}; {hint}", "data.column", str(where))
            )
    if problems:
        raise InputError(problems)

    def read(one: str) -> Iterator[str]:
        return text_of_rows(tables[one], column, where)

    splits = {SPLIT_NAMES[key.lower()]: key for key in tables if key.lower() in SPLIT_NAMES}
    if {"train", "valid"} <= set(splits):
        return Corpus(
            name, identity, lambda split: read(splits[split]) if split in splits else iter(()),
            split=lambda: NAMED,
        )  # fmt: skip
    if len(tables) == 1:
        return split_by_hash(name, identity, lambda: read(next(iter(tables))), where)
    if "train" in splits:  # as many datasets are: validation is taken out of train, and test stays test
        dealt = split_by_hash(name, identity, lambda: read(splits["train"]), where, test=False)
        own = {"test": lambda: read(splits["test"])} if "test" in splits else {}
        return replace(
            dealt, documents=lambda split: own[split]() if split in own else dealt.documents(split)
        )
    message = f"has the splits {', '.join(tables)}; train is needed, or one alone"
    raise InputError(Problem(message, key="data.root", where=str(where)))


def text_of_rows(table: Any, column: str, where: Path | str) -> Iterator[str]:
    """The texts of a table of `datasets`, mapped or streamed; those of white space alone left out."""
    for batch in table.select_columns([column]).iter(64):
        for value in batch[column]:
            if value is not None and not isinstance(value, str):
                raise InputError(Problem(f"column {column!r} is not text", "data.column", str(where)))
            if value and value.strip():
                yield value


def find_files(root: Path) -> list[Path]:
    """The files that `root` means, sorted: of a folder all whose format is read. That it leaves out files of
    other formats is reported. Raises InputError where there are none."""
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise InputError(Problem("there is no such folder or file", key="data.root", where=str(root)))
    inside = sorted((path for path in root.rglob("*") if path.is_file()), key=Path.as_posix)
    files = [path for path in inside if format_of(path) in READ]
    others = [path.relative_to(root).as_posix() for path in inside if format_of(path) in OTHER_FORMATS]
    named = ", ".join(others[:8]) + (f" and {len(others) - 8} more" if len(others) > 8 else "")
    if not files:
        hint = f"; {named} cannot be read" if others else ""
        formats = f"no text file ({', '.join(READ)}; each also {', '.join(COMPRESSED)})"
        raise InputError(Problem(f"the folder holds {formats}{hint}", key="data.root", where=str(root)))
    if others and is_first_process():
        message = f"warning: data.root: {root}: {named} cannot be read and are left out"
        print(printable(message), file=sys.stderr)
    return files


def _named_splits(root: Path, files: list[Path]) -> dict[str, list[Path]]:
    """The files of each split where names give them: both train and valid, by a file or the folder above."""
    found: dict[str, list[Path]] = {}
    unnamed = []
    for file in files:
        parts = (SPLIT_NAME.match(part) for part in file.relative_to(root).parts)
        match = next((one for one in parts if one), None)
        if match is None:
            unnamed.append(file)
        else:
            found.setdefault(SPLIT_NAMES[match[1].lower()], []).append(file)
    if not {"train", "valid"} <= found.keys():
        return {}
    if unnamed:
        message = "in no split: others in this folder are named train and valid"
        raise InputError(Problem(message, key="data.root", where=str(file)) for file in unnamed)
    return found


def _why_no_text(file: Path) -> str | None:
    """Why a file cannot be read by its name or its beginning; None where it may be."""
    kind = format_of(file)
    if kind in OTHER_FORMATS:
        return f"{kind} is not read"
    if kind in READ and kind not in PLAIN:
        return None
    try:
        with open_bytes(file) as opened:
            head = opened.read(HEAD)
    except Exception:
        return None  # whoever reads it reports it
    if (zero := head.find(b"\0")) >= 0:
        return f"a zero byte at byte {zero}: it is binary, or text that is not UTF-8"
    return "it begins with JSON; name it .jsonl" if JSON.match(head) else None


def _fingerprint(document: str) -> int:
    return int.from_bytes(hashlib.sha256(document.encode()).digest()[:8], "big")


def assign(fingerprints: np.ndarray, where: Path | str, test: bool = True) -> np.ndarray | None:
    """The number of its split for each document, uint8; None where all are the same one. Raises InputError
    if there is none."""
    order = np.unique(fingerprints)
    if not len(order):
        raise InputError(Problem("holds no text", key="data.root", where=str(where)))
    if len(order) == 1:
        return None
    # A hash is as good as a throw of dice: the smallest are the held-out ones.
    held_out = max(1, round(len(order) * HELD_OUT))
    codes = np.zeros(len(fingerprints), np.uint8)
    if test and len(order) >= 3:
        codes[fingerprints <= order[2 * held_out - 1]] = SPLITS.index("test")
    codes[fingerprints <= order[held_out - 1]] = SPLITS.index("valid")
    return codes


def cut_by_position(document: str, where: Path | str) -> dict[str, str]:
    """The splits of a single document: 90, 5 and 5 % of its characters, cut at the next end of a line, or of
    a word where there is none near.

    Raises:
        InputError: too short to be cut.
    """
    cuts = [0]
    for share in (1 - 2 * HELD_OUT, 1 - HELD_OUT):
        start = max(cuts[-1], round(len(document) * share))
        ahead = document[start : start + HEAD]
        border = re.search(r"\n", ahead) or re.search(r"\s", ahead)
        cuts.append(start + (border.end() if border else len(ahead)))
    cuts.append(len(document))
    parts = {split: document[a:b] for split, a, b in zip(SPLITS, cuts, cuts[1:], strict=False)}
    if not (parts["train"].strip() and parts["valid"].strip()):
        message = f"holds only one document, too short to be cut into splits: {ADVICE}"
        raise InputError(Problem(message, key="data.root", where=str(where)))
    return parts
