"""The user's own text: a file, a folder of files, or a folder that `datasets` has saved.

A plain text file is a document, or several with lines `<|endoftext|>` between them; a record of any other
format is a document.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from zoo.data.text import Corpus, stamp
from zoo.data.text.splits import (
    HELD_OUT,
    NAMED,
    SPLIT_NAMES,
    check_column,
    from_tables,
    split_by_hash,
    text_of,
)
from zoo.errors import InputError, Problem, first_line

SEPARATOR = "<|endoftext|>"
PLAIN = (".txt", ".text", ".md")
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
"""Names of compressions in fsspec; zstd needs the package `zstandard`."""
PROBED = 1000  # records of a JSON file, of which one must have the column
SPLIT_NAME = re.compile(rf"({'|'.join(SPLIT_NAMES)})(?![a-z])", re.IGNORECASE)


def open_text(root: Path, column: str = "text", whole: bool = False) -> Corpus:
    """The corpus in `root`.

    Names of files, folders or saved splits decide the splits (train, validation, test). Without such names
    90 % of the documents train, 5 % are for validation and 5 % for test; validation has at least one, and so
    has test where there are three.

    Args:
        column: the records' field with the text.
        whole: without names of splits, all documents are for validation and test.

    Raises:
        InputError: no text there, or a file in no split; on reading, a file that cannot be read.
    """
    if any((root / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return _saved(root, column)
    files = find_files(root)
    identity = ["text", HELD_OUT, column, *map(stamp, files)]

    def read(some: Iterable[Path]) -> Iterator[str]:
        for file in some:
            yield from read_documents(file, column)

    named = {} if root.is_file() else _named_splits(root, files)
    if named:
        return Corpus("text", identity, lambda split: read(named.get(split, ())), split=lambda: NAMED)
    if whole:
        return Corpus(
            "text", [*identity, "whole"], lambda split: iter(()) if split == "train" else read(files)
        )
    return split_by_hash("text", identity, lambda: read(files), root)


def find_files(root: Path) -> list[Path]:
    """The file `root`, or the files of a folder whose format is supported, sorted. Raises InputError where
    there are none."""
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise InputError(Problem("there is no such folder or file", key="data.root", where=str(root)))
    files = [path for path in root.rglob("*") if path.is_file() and format_of(path) in (*PLAIN, *RECORDS)]
    if not files:
        formats = f"{', '.join((*PLAIN, *RECORDS))}; each also {', '.join(COMPRESSED)}"
        message = f"the folder holds no text file ({formats})"
        raise InputError(Problem(message, key="data.root", where=str(root)))
    return sorted(files, key=Path.as_posix)


def format_of(path: Path) -> str:
    """The end of a file's name in lower case, without that of its compression."""
    return (Path(path.stem) if path.suffix.lower() in COMPRESSED else path).suffix.lower()


def _named_splits(root: Path, files: list[Path]) -> dict[str, list[Path]]:
    """The files of each split by names of files or folders; empty unless both train and valid are named."""
    found: dict[str, list[Path]] = {}
    for file in files:
        matches = map(SPLIT_NAME.match, file.relative_to(root).parts)
        split = next((SPLIT_NAMES[match[1].lower()] for match in matches if match), "")
        found.setdefault(split, []).append(file)
    if not {"train", "valid"} <= found.keys():
        return {}
    if unnamed := found.get(""):
        message = "in no split: others in this folder are named train and valid"
        raise InputError(Problem(message, key="data.root", where=str(file)) for file in unnamed)
    return found


def read_documents(path: Path, column: str) -> Iterator[str]:
    """The documents of a file in order, without blank ones.

    Raises InputError where the file cannot be read, has no such column or no record.
    """
    if format_of(path) not in RECORDS:
        yield from _plain_documents(path)
        return
    where = None
    try:
        for where, value in RECORDS[format_of(path)](path, column):
            if text := text_of(value, column, where):
                text.encode()  # JSON may escape half of a surrogate pair
                yield text
    except InputError:
        raise
    except Exception as error:  # pyarrow and fsspec raise several kinds
        raise _unreadable(where if isinstance(error, UnicodeEncodeError) else path, error) from error
    if where is None:
        raise InputError(Problem("holds no record", where=str(path)))


def _unreadable(where: Path | str, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or first_line(error)
    return InputError(Problem(f"cannot be read: {reason}", where=str(where)))


def _json_values(path: Path, column: str) -> Iterator[tuple[str, object]]:
    """The values of a column, with the places of their records, from a list or from a record per line."""
    names: dict[str, object] = {}
    for number, (where, record) in enumerate(_json_records(path), 1):
        if not isinstance(record, dict):
            raise InputError(Problem(f"is not a record with a field {column!r}", where=where))
        if column not in names:
            names |= record
            if number >= PROBED:
                check_column([*names], column, path)
        yield where, record.get(column)
    if names:
        check_column([*names], column, path)


def _json_records(path: Path) -> Iterator[tuple[str, object]]:
    number, lines = 0, read_lines(path)
    try:
        for number, line in enumerate(lines, 1):
            if line.lstrip().startswith("["):
                yield from ((str(path), record) for record in json.loads(line + "".join(lines)))
            elif line.strip():
                yield f"{path}:{number}", json.loads(line.strip())
    except json.JSONDecodeError as error:
        message = f"cannot be read: not JSON: {error.msg}"
        raise InputError(Problem(message, where=f"{path}:{number - 1 + error.lineno}")) from error


def _csv_values(path: Path, column: str) -> Iterator[tuple[str, object]]:
    csv.field_size_limit(2**31 - 1)
    separator = "\t" if format_of(path) == ".tsv" else ","
    rows = csv.DictReader(read_lines(path), delimiter=separator, strict=True)
    if rows.fieldnames:
        check_column([*rows.fieldnames], column, path)
    try:
        for row in rows:
            if None in row:
                raise csv.Error("more fields than the header has")
            yield f"{path}:{rows.reader.line_num}", row[column]
    except csv.Error as error:
        raise _unreadable(f"{path}:{rows.reader.line_num}", error) from error


def _parquet_values(path: Path, column: str) -> Iterator[tuple[str, object]]:
    import fsspec
    from pyarrow.parquet import ParquetFile

    with fsspec.open(str(path), "rb", compression=COMPRESSED.get(path.suffix.lower())) as file:
        table = ParquetFile(file)
        check_column(table.schema_arrow.names, column, path)
        for batch in table.iter_batches(64, columns=[column]):
            yield from ((str(path), value) for value in batch[0].to_pylist())


RECORDS: dict[str, Callable[[Path, str], Iterator[tuple[str, object]]]] = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json_values),
    **dict.fromkeys((".csv", ".tsv"), _csv_values),
    ".parquet": _parquet_values,
}
"""Reader of a column's values, each with its place, by the end of a file's name."""


def _plain_documents(path: Path) -> Iterator[str]:
    lines: list[str] = []
    for line in read_lines(path):
        if line.strip() != SEPARATOR:
            lines.append(line)
        elif document := "".join(lines):
            lines = []
            if document.strip():
                yield document
    if (document := "".join(lines)).strip():
        yield document


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file with their ends unchanged, without a byte order mark.

    `load_dataset("text")` would replace the ends of lines, which count as bytes and words here. Raises
    InputError where the file cannot be read, with the position of a byte that is not UTF-8.
    """
    import fsspec

    offset = 0
    try:
        with fsspec.open(str(path), "rb", compression=COMPRESSED.get(path.suffix.lower())) as file:
            for raw in file:
                line = raw.decode()
                yield line.removeprefix("\ufeff") if offset == 0 else line
                offset += len(raw)
    except UnicodeDecodeError as error:
        byte = f"byte {offset + error.start} (0x{error.object[error.start]:02x})"
        message = f"{byte} is not UTF-8 text; save the file as UTF-8"
        raise InputError(Problem(message, where=str(path))) from None
    except (OSError, EOFError, ValueError) as error:  # of the disk, and of compressions
        raise _unreadable(path, error) from error


def _saved(root: Path, column: str) -> Corpus:
    """A folder of `save_to_disk`: a dataset, or one for each split."""
    import datasets

    try:
        saved = datasets.load_from_disk(str(root))
    except Exception as error:  # of many kinds
        message = f"`datasets` cannot load it: {first_line(error)}"
        raise InputError(Problem(message, key="data.root", where=str(root))) from error
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return from_tables("text", ["saved", column, *map(stamp, files)], saved, column, root)
