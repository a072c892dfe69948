"""Documents in files of the formats that people have: plain text, JSON, CSV and Parquet, compressed or not.

All are read as a stream, a document at a time; a compressed Parquet file is unpacked into a temporary one.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from zoo.errors import InputError, Problem, nearest, shorten

SEPARATOR = "<|endoftext|>"
PLAIN = (".txt", ".text", ".md")
LINES = (".jsonl", ".ndjson")
TABLES = {".csv": ",", ".tsv": "\t"}
READ = (*PLAIN, *LINES, ".json", *TABLES, ".parquet")
"""Formats, by the end of a name in lower case, in front of that of the compression."""
BATCH = 256  # rows of Parquet in memory at a time
PIECE = 1 << 20  # characters of JSON that are read at once
LARGEST_RECORD = 1 << 29  # characters of JSON; what does not end before is taken to be broken
TOLD = 10
"""Bad records of a file that are told at once; there may be as many as it has."""

Documents = Iterator[str | Problem]


COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".xz": "xz"}
"""Ends of names, and what they are compressed by."""


def format_of(path: Path) -> str:
    """The end of a file's name without that of its compression, in lower case."""
    name = Path(path.stem) if path.suffix.lower() in COMPRESSED else path
    return name.suffix.lower()


def open_bytes(path: Path) -> IO[bytes]:
    """The content of a file, decompressed. Reading raises OSError or EOFError where it is cut short."""
    method = COMPRESSED.get(path.suffix.lower())
    if method is None:
        return open(path, "rb")
    if method == "xz":
        return lzma.open(path)
    import pyarrow as pa

    return io.BufferedReader(pa.input_stream(str(path), compression=method))


def read_documents(path: Path, column: str) -> Iterator[str]:
    """The documents of a file in order, those of white space alone left out.

    Args:
        column: where a record has the text.

    Raises:
        InputError: cannot be read, or has no such column; up to ten bad records are named with their lines.
    """
    kind = format_of(path)
    try:
        if kind == ".parquet":
            documents = _parquet(path, column)
        elif kind in TABLES:
            documents = _table(path, column, TABLES[kind])
        elif kind == ".json" and _is_list(path):
            documents = _json_list(path, column)
        elif kind in (".json", *LINES):
            documents = _json_lines(path, column)
        else:
            documents = _plain(path)
        bad: list[Problem] = []
        for document in documents:
            if isinstance(document, Problem):
                bad.append(document)
                if len(bad) == TOLD:
                    break
            elif not bad and document.strip():
                yield document
        if bad:
            raise InputError(bad)
    except (OSError, EOFError, lzma.LZMAError) as error:
        reason = (
            f"cannot be read: {error.strerror}" if getattr(error, "strerror", None) else f"damaged: {error}"
        )
        raise InputError(Problem(reason, where=str(path))) from None


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file with their ends as they are; a byte order mark at its start is left out.

    Raises InputError that names the file and the byte where it is not UTF-8.
    """
    offset = 0
    try:
        with open_bytes(path) as file:
            for raw in file:
                line = raw.decode()
                yield line.removeprefix("\ufeff") if offset == 0 else line
                offset += len(raw)
    except UnicodeDecodeError as error:
        byte = f"byte {offset + error.start} (0x{error.object[error.start]:02x})"
        message = f"{byte} is not UTF-8 text; save the file as UTF-8"
        raise InputError(Problem(message, where=str(path))) from None


def _plain(path: Path) -> Iterator[str]:
    lines: list[str] = []
    for line in read_lines(path):
        if line.strip() == SEPARATOR:
            yield "".join(lines)
            lines = []
        else:
            lines.append(line)
    yield "".join(lines)


def _is_list(path: Path) -> bool:
    with open_bytes(path) as file:
        return file.read(1 << 10).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")


def _json_list(path: Path, column: str) -> Documents:
    """The records of a list, which is read piece by piece."""
    decoder, pieces = json.JSONDecoder(), _pieces(path)
    ahead, line, number, closed, ended = next(pieces), 1, 0, False, False
    position = ahead.index("[") + 1
    line += ahead.count("\n", 0, position)
    while True:
        while position < len(ahead) and ahead[position] in " \t\r\n,]":
            line += ahead[position] == "\n"
            closed = closed or ahead[position] == "]"
            position += 1
        if position == len(ahead) and ended:
            if not closed:
                yield Problem("is not JSON: the list does not end", where=f"{path}:{line}")
            return
        fault, end = "nested too deeply", 0
        try:
            record, end = decoder.raw_decode(ahead, position)
        except RecursionError:
            ended, at = True, line
        except json.JSONDecodeError as error:
            # What ends with the piece may go on in the next one.
            cut = error.pos >= len(ahead) - 16 or error.msg.startswith(("Unterminated", "Invalid \\"))
            ended = ended or not cut or len(ahead) - position > LARGEST_RECORD
            fault, at = error.msg, line + ahead.count("\n", position, error.pos)
        if end and (ended or end < len(ahead) or isinstance(record, dict)):
            number += 1
            yield from _text_of(record, column, str(path), f"record {number}: ")
            line += ahead.count("\n", position, end)
            position = end
        elif ended:
            yield Problem(f"is not JSON: {fault}", where=f"{path}:{at}")
            return
        else:
            # As much again: what is large would be tried all too often.
            ahead, position = ahead[position:], 0
            size = len(ahead) + 1
            while len(ahead) < 2 * size and not ended:
                piece = next(pieces, None)
                ended = piece is None
                ahead += piece or ""


def _pieces(path: Path) -> Iterator[str]:
    with open_bytes(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        try:
            while piece := text.read(PIECE):
                yield piece
        except UnicodeDecodeError as error:
            raise InputError(Problem(f"is not UTF-8 text: {error.reason}", where=str(path))) from None


def _json_lines(path: Path, column: str) -> Documents:
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield Problem(f"the line is not JSON: {error}", where=where)
        else:
            yield from _text_of(record, column, where)


def _table(path: Path, column: str, delimiter: str) -> Documents:
    csv.field_size_limit(sys.maxsize)
    rows = csv.reader(read_lines(path), delimiter=delimiter)
    try:
        header = next(rows, [])
        if column not in header:
            raise InputError(_no_column(column, header, f"{path}:1"))
        index = header.index(column)
        for row in rows:
            if row and len(row) != len(header):
                message = f"{len(row)} fields, and the header has {len(header)}"
                yield Problem(message, where=f"{path}:{rows.line_num}")
            elif row:
                yield row[index]
    except csv.Error as error:
        raise InputError(Problem(f"is not CSV: {error}", where=f"{path}:{rows.line_num}")) from None


def _parquet(path: Path, column: str) -> Documents:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryFile() as plain:
        source: Any = path
        if path.suffix.lower() in COMPRESSED:
            with open_bytes(path) as file:
                shutil.copyfileobj(file, plain)
            source = plain
        try:
            with pq.ParquetFile(source) as file:
                names = file.schema_arrow.names
                if column not in names:
                    raise InputError(_no_column(column, names, str(path)))
                row = 0
                for batch in file.iter_batches(BATCH, columns=[column]):
                    for value in batch.column(0).to_pylist():
                        row += 1
                        yield from _text_of({column: value}, column, str(path), f"row {row}: ")
        except pa.ArrowException as error:
            message = f"is not Parquet, or damaged: {shorten(str(error), 200)}"
            raise InputError(Problem(message, where=str(path))) from None


def _text_of(record: Any, column: str, where: str, at: str = "") -> Documents:
    """The text of a record, none where it is null; a problem where it has no text."""
    if not isinstance(record, dict):
        message = f"{at}{shorten(repr(record))} is no record with a column {column!r}"
        yield Problem(message, key="data.column", where=where)
    elif column not in record:
        yield _no_column(column, list(record), where, at)
    elif isinstance(value := record[column], str):
        yield value
    elif value is not None:
        message = f"{at}{column} is {shorten(repr(value))} and not text"
        yield Problem(message, key="data.column", where=where)


def _no_column(column: str, names: list[str], where: str, at: str = "") -> Problem:
    near = nearest(column, map(str, names))
    hint = f"did you mean {near!r}?" if near else "say which one holds the text"
    there = ", ".join(map(str, names[:20])) or "none"
    return Problem(f"{at}no column {column!r}; {hint} There are: {there}", key="data.column", where=where)
