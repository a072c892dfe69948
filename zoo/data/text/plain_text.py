"""Anybody's text: a folder of .txt files, or one file.

A file is a document, unless lines `<|endoftext|>` cut it into several. The splits are made of whole
documents, chosen by a hash of their text: neither names nor order decide, and two equal documents are never
on two sides.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from zoo.data.text.corpus import Corpus, TextChanged, read_lines, stamp
from zoo.data.text.other_formats import is_other_format, validate_plain_text, names_of
from zoo.errors import InputError, Problem, printable
from zoo.launch.ranks import is_first_process

SEPARATOR = "<|endoftext|>"
HELD_OUT = 0.05  # of the documents, for validation and again for test


def open_text(root: Path) -> Corpus:
    """The corpus below `root`: 90 % of the documents train, 5 % valid, 5 % test; at least one is in valid,
    and one in test where there are three.

    Raises InputError where there is no text, only one document, a file of another format, or bytes that are
    not UTF-8.
    """
    files = find_files(root)
    validate_plain_text(files)

    @functools.cache
    def assignment() -> dict[bytes, str]:
        return assign([fingerprint(document) for document in read_documents(files)], root)

    def documents(split: str) -> Iterator[str]:
        split_of = assignment()
        for document in read_documents(files):
            of = split_of.get(fingerprint(document))
            if of is None:
                raise TextChanged(Problem("the text changed while it was read; run again", where=str(root)))
            if of == split:
                yield document

    return Corpus("text", ["text", HELD_OUT, *(stamp(file) for file in files)], documents)


def find_files(root: Path) -> list[Path]:
    """The text files that `root` means, sorted. Of a folder those that end with .txt; that it leaves out files
    of other formats is reported. Raises InputError where there are none."""
    if root.is_file():
        return [root]
    if not root.exists():
        raise InputError(Problem("there is no such folder or file", key="data.root", where=str(root)))
    if not root.is_dir():
        raise InputError(Problem("neither a folder nor a file of text", key="data.root", where=str(root)))
    inside = sorted(
        (path for path in root.rglob("*") if path.is_file()),
        key=lambda path: path.relative_to(root).as_posix(),
    )
    files = [path for path in inside if path.suffix.lower() == ".txt"]
    others = [path for path in inside if is_other_format(path)]
    if not files:
        hint = f"; {names_of(others, root)} are not plain text" if others else ""
        raise InputError(Problem(f"the folder holds no .txt file{hint}", key="data.root", where=str(root)))
    if others and is_first_process():
        left_out = f"only its .txt files are read, and not {names_of(others, root)}"
        print(printable(f"warning: data.root: {root}: {left_out}"), file=sys.stderr)
    return files


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


def fingerprint(document: str) -> bytes:
    return hashlib.sha256(document.encode()).digest()


def assign(fingerprints: list[bytes], root: Path) -> dict[bytes, str]:
    """A split for every different document. Raises InputError if there are not two."""
    order = sorted(set(fingerprints))
    if len(order) < 2:
        found = "only one document" if order else "no text"
        raise InputError(
            Problem(
                f"holds {found}, and training and validation need one each: split it into several .txt "
                f"files, or put lines {SEPARATOR} between its documents",
                key="data.root",
                where=str(root),
            )
        )
    # A hash is as good as a throw of dice: the smallest are the held-out ones.
    valid = max(1, round(len(order) * HELD_OUT))
    test = max(1, round(len(order) * HELD_OUT)) if len(order) >= 3 else 0
    splits = ["valid"] * valid + ["test"] * test + ["train"] * (len(order) - valid - test)
    return dict(zip(order, splits, strict=True))
