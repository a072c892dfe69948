"""Files that are not plain text, known before they are read: their syntax would be trained on as if it were text."""

from __future__ import annotations

import re
from pathlib import Path

from zoo.errors import InputError, Problem

RECORDS = ".arrow .avro .csv .feather .json .jsonl .ndjson .orc .parquet .tsv".split()
MARKUP = ".doc .docx .epub .htm .html .odt .pdf .rtf .xls .xlsx .xml".split()
PACKED = ".7z .bz2 .gz .lz4 .rar .tar .tgz .xz .zip .zst".split()
FORMATS = frozenset([*RECORDS, *MARKUP, *PACKED])
"""Ends of names, in lower case. What has another one, or none, may be text."""

ADVICE = "write the text alone into .txt files, one a document, or with lines <|endoftext|> between documents"

HEAD = 1 << 16
"""Bytes at the beginning of a file that are looked at."""
OBJECT = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*"[^"\n]*"\s*:')
"""How JSON begins, of one record or of a list of them."""
MOST = 8
"""Names in one message."""


def is_other_format(path: Path) -> bool:
    """Whether a file's name says that it is not plain text."""
    return path.suffix.lower() in FORMATS


def validate_plain_text(files: list[Path]) -> None:
    """Raises InputError with every file whose name or beginning says that it is not plain text."""
    problems = [
        Problem(f"{why}; {ADVICE}", key="data.root", where=str(file)) for file in files if (why := _why_not(file))
    ]
    if problems:
        raise InputError(problems)


def names_of(files: list[Path], root: Path) -> str:
    """The names of files below a folder, as many as a message can hold."""
    names = [file.relative_to(root).as_posix() for file in files]
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


def _why_not(file: Path) -> str | None:
    if is_other_format(file):
        return f"{file.suffix.lower()} is not plain text"
    try:
        with open(file, "rb") as opened:
            head = opened.read(HEAD)
    except OSError:
        return None  # whoever reads it reports it
    if (zero := head.find(b"\0")) >= 0:
        return f"a zero byte at byte {zero}: it is binary, or text that is not UTF-8"
    return "it begins with JSON, which is not plain text" if OBJECT.match(head) else None
