"""Anybody's text: a folder of .txt files, or one file.

A file is a document, unless lines `<|endoftext|>` cut it into several. The splits are made of whole
documents, chosen by a hash of their text: neither names nor order decide, and two equal documents are never
on two sides. Files that are not plain text are refused before they are read: their syntax would be trained on
as if it were text.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from zoo.data.text import Corpus, TextChanged, read_lines, stamp
from zoo.errors import InputError, Problem, printable
from zoo.launch.ranks import is_first_process

SEPARATOR = "<|endoftext|>"
HELD_OUT = 0.05  # of the documents, for validation and again for test

RECORDS = [".arrow", ".avro", ".csv", ".feather", ".json", ".jsonl", ".ndjson", ".orc", ".parquet", ".tsv"]
MARKUP = [".doc", ".docx", ".epub", ".htm", ".html", ".odt", ".pdf", ".rtf", ".xls", ".xlsx", ".xml"]
PACKED = [".7z", ".bz2", ".gz", ".lz4", ".rar", ".tar", ".tgz", ".xz", ".zip", ".zst"]
OTHER_FORMATS = frozenset([*RECORDS, *MARKUP, *PACKED])
"""Ends of names, in lower case. What has another one, or none, may be text."""
ADVICE = f"write the text alone into .txt files, one a document, or with lines {SEPARATOR} between documents"
HEAD = 1 << 16
"""Bytes at the beginning of a file that are looked at."""
JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*"[^"\n]*"\s*:')
"""How JSON begins, of one record or of a list of them."""


def open_text(root: Path) -> Corpus:
    """The corpus below `root`: 90 % of the documents train, 5 % valid, 5 % test; at least one is in valid,
    and one in test where there are three.

    Raises InputError where there is no text, only one document, a file of another format, or bytes that are
    not UTF-8.
    """
    files = find_files(root)
    problems = [
        Problem(f"{why}; {ADVICE}", key="data.root", where=str(file))
        for file in files
        if (why := _why_no_text(file))
    ]
    if problems:
        raise InputError(problems)

    @functools.cache
    def assignment() -> dict[bytes, str]:
        return assign([_fingerprint(document) for document in read_documents(files)], root)

    def documents(split: str) -> Iterator[str]:
        split_of = assignment()
        for document in read_documents(files):
            of = split_of.get(_fingerprint(document))
            if of is None:
                raise TextChanged(Problem("the text changed while it was read; run again", where=str(root)))
            if of == split:
                yield document

    return Corpus("text", ["text", HELD_OUT, *map(stamp, files)], documents)


def find_files(root: Path) -> list[Path]:
    """The text files that `root` means, sorted: of a folder those that end with .txt. That it leaves out
    files of other formats is reported. Raises InputError where there are none."""
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise InputError(Problem("there is no such folder or file", key="data.root", where=str(root)))
    inside = sorted((path for path in root.rglob("*") if path.is_file()), key=Path.as_posix)
    files = [path for path in inside if path.suffix.lower() == ".txt"]
    others = [path.relative_to(root).as_posix() for path in inside if path.suffix.lower() in OTHER_FORMATS]
    named = ", ".join(others[:8]) + (f" and {len(others) - 8} more" if len(others) > 8 else "")
    if not files:
        hint = f"; {named} are not plain text" if others else ""
        raise InputError(Problem(f"the folder holds no .txt file{hint}", key="data.root", where=str(root)))
    if others and is_first_process():
        message = f"warning: data.root: {root}: only its .txt files are read, and not {named}"
        print(printable(message), file=sys.stderr)
    return files


def _why_no_text(file: Path) -> str | None:
    """Why a file is not plain text by its name or its beginning; None where it may be."""
    if file.suffix.lower() in OTHER_FORMATS:
        return f"{file.suffix.lower()} is not plain text"
    try:
        with open(file, "rb") as opened:
            head = opened.read(HEAD)
    except OSError:
        return None  # whoever reads it reports it
    if (zero := head.find(b"\0")) >= 0:
        return f"a zero byte at byte {zero}: it is binary, or text that is not UTF-8"
    return "it begins with JSON, which is not plain text" if JSON.match(head) else None


def read_documents(files: list[Path]) -> Iterator[str]:
    """Documents in order, those of white space alone left out. Only one is in memory at a time."""
    for file in files:
        lines: list[str] = []
        for line in read_lines(file):
            if line.strip() == SEPARATOR:
                yield from _document(lines)
                lines = []
            else:
                lines.append(line)
        yield from _document(lines)


def _document(lines: list[str]) -> Iterator[str]:
    document = "".join(lines)
    if document.strip():
        yield document


def _fingerprint(document: str) -> bytes:
    return hashlib.sha256(document.encode()).digest()


def assign(fingerprints: list[bytes], root: Path) -> dict[bytes, str]:
    """A split for every different document. Raises InputError if there are not two."""
    order = sorted(set(fingerprints))
    if len(order) < 2:
        message = (
            f"holds {'only one document' if order else 'no text'}, and training and validation need one "
            f"each: split it into several .txt files, or put lines {SEPARATOR} between its documents"
        )
        raise InputError(Problem(message, key="data.root", where=str(root)))
    # A hash is as good as a throw of dice: the smallest are the held-out ones.
    held_out = max(1, round(len(order) * HELD_OUT))
    test = held_out if len(order) >= 3 else 0
    splits = ["valid"] * held_out + ["test"] * test + ["train"] * (len(order) - held_out - test)
    return dict(zip(order, splits, strict=True))
