"""The user's own text: a file, a folder of files, or a folder that `datasets` has saved.

A plain text file is a document, or several with lines `<|endoftext|>` between them; a record of any other
format is a document. The readers of `datasets` are not used: its text has other ends of lines, a JSON field
beside the text that changes its type ends its reading, and its errors name no file.
"""

from __future__ import annotations

import csv
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from zoo.data.text import Corpus, stamp
from zoo.data.text.splits import (
    HELD_OUT,
    check_column,
    from_parts,
    from_tables,
    split_names,
    text_of,
    without_splits,
    words_of_name,
)
from zoo.errors import InputError, Problem, first_line
from zoo.launch.ranks import is_first_process

SEPARATOR = "<|endoftext|>"
PLAIN = (".txt", ".text", ".md")
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
"""Names of compressions in fsspec; zstd needs the package `zstandard`."""
PROBED = 1000  # records of a JSON file, of which one must have the column


def open_text(root: Path, column: str = "text") -> Corpus:
    """The corpus in `root`.

    Names of files, folders or saved splits decide the splits (train, validation, test). Without such names
    90 % of the documents train, 5 % are for validation and 5 % for test; validation has at least one, and so
    has test where there are three. Without validation alone, it is taken out of train.

    Args:
        column: the records' field with the text.

    Raises:
        InputError: no text there; on reading, a file that cannot be read; of documents of a split, files that
            may be in one or not.
    """
    if any((root / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return _saved(root, column)
    files = find_files(root)
    identity = ["text", HELD_OUT, column, *map(stamp, files)]
    if any(format_of(file) in (".csv", ".tsv") for file in files):
        identity.append("rows 2")

    def read(some: list[Path]) -> Iterator[str]:
        for file in some:
            yield from read_documents(file, column)

    try:
        named = {} if root.is_file() else named_splits(root, files)
    except InputError as error:
        return without_splits("text", [*identity, "ambiguous"], error, partial(read, files), len(files))
    if named:
        identity.append({split: [*map(str, some)] for split, some in named.items()})
    parts = {split: partial(read, some) for split, some in (named or {"": files}).items()}
    return from_parts("text", identity, parts, root, len(files))


def find_files(root: Path) -> list[Path]:
    """The file `root`, or the files of a folder whose format is supported, sorted; those of linked folders
    too, but no hidden ones and no data card. Raises InputError where there are none."""
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise InputError(Problem("there is no such folder or file", key="data.root", where=str(root)))
    from datasets.data_files import FILES_TO_IGNORE

    files = []
    for folder, below, names in os.walk(root, followlinks=True):
        here = Path(folder).resolve()
        # A link to a folder around it has no end.
        around = {here, *here.parents}
        below[:] = [one for one in below if one[0] != "." and (here / one).resolve() not in around]
        files += [Path(folder, one) for one in names if one[0] != "." and one not in FILES_TO_IGNORE]
    files = [file for file in files if format_of(file) in (*PLAIN, *RECORDS) and file.is_file()]
    if not files:
        formats = f"{', '.join((*PLAIN, *RECORDS))}; each also {', '.join(COMPRESSED)}"
        message = f"the folder holds no text file ({formats})"
        raise InputError(Problem(message, key="data.root", where=str(root)))
    return sorted(files, key=Path.as_posix)


def format_of(path: Path) -> str:
    """The end of a file's name in lower case, without that of its compression."""
    return _uncompressed(path).suffix.lower()


def _uncompressed(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def named_splits(root: Path, files: list[Path]) -> dict[str, list[Path]]:
    """The files of each split by names of files or folders; empty where no file is named valid or test.

    A name is that of a split if it has one of the words of `datasets`. Among files in no split, a file with
    words that none of them has is a document: `A Test of Time.txt` among novels.

    Raises InputError where files may be in a split or not.
    """
    found: dict[str, list[Path]] = {}
    words: dict[Path, set[str]] = {}
    for file in files:
        parts = [
            {*words_of_name(part)} for part in _uncompressed(file.relative_to(root)).with_suffix("").parts
        ]
        splits = [{split_names()[word] for word in part & split_names().keys()} for part in parts]
        split = next((min(one) for one in splits if len(one) == 1), "")
        found.setdefault(split, []).append(file)
        words[file] = set().union(*parts) - split_names().keys() - {"of"}  # test-00000-of-00001
    held_out, others = [*found.get("valid", ()), *found.get("test", ())], found.get("", [])
    if not held_out:
        return {}
    if others:
        alike = [one for one in held_out if any(words[one] <= words[other] for other in others)]
        if not alike and "train" not in found:
            return {}
        names = [str(one.relative_to(root)) for one in (*(alike or held_out)[:1], *others[:1])]
        message = (
            f"{names[0]} is named as a split, and {names[1]} is in no split ({len(others)} of {len(files)} "
            "files are in none): name all files or folders train, valid or test, or put all into one folder "
            "train/"
        )
        raise InputError(Problem(message, key="data.root", where=str(root)))
    return found


def read_documents(path: Path, column: str) -> Iterator[str]:
    """The documents of a file in order, without blank ones; a warning where there are none.

    Raises InputError where the file cannot be read or has no such column.
    """
    where, count = str(path), 0
    try:
        for where, value in RECORDS.get(format_of(path), _plain_documents)(path, column):
            if text := text_of(value, column, where):
                text.encode()  # JSON may escape half of a surrogate pair
                count += 1
                yield text
    except InputError:
        raise
    except Exception as error:  # pyarrow and fsspec raise several kinds
        raise _unreadable(where if isinstance(error, UnicodeEncodeError) else path, error) from error
    if not count:
        _warn_empty(path)


@functools.cache
def _warn_empty(path: Path) -> None:
    """A warning, once for each file: a corpus is read several times."""
    if is_first_process():
        print(f"warning: {path} holds no text", file=sys.stderr)


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
    """A record per line; or a list, or the one record of a `.json`, over any number of lines."""
    number, lines, many = 0, read_lines(path), format_of(path) != ".json"
    try:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line.strip())
            except json.JSONDecodeError:
                if many and not line.lstrip().startswith("["):
                    raise
                value = json.loads(line + "".join(lines))
            many = True
            if isinstance(value, list):
                yield from ((f"{path}: record {index}", record) for index, record in enumerate(value, 1))
            else:
                yield f"{path}:{number}", value
    except json.JSONDecodeError as error:
        message = f"cannot be read: not JSON: {error.msg}"
        raise InputError(Problem(message, where=f"{path}:{number - 1 + error.lineno}")) from error


def _csv_values(path: Path, column: str) -> Iterator[tuple[str, object]]:
    csv.field_size_limit(2**31 - 1)
    # A quotation mark in a field between tabs is text.
    tabs = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if format_of(path) == ".tsv" else {}
    rows = csv.DictReader(read_lines(path), strict=True, **tabs)
    if rows.fieldnames:
        check_column([*rows.fieldnames], column, path)
    try:
        for row in rows:
            if None in row or row[column] is None:
                raise csv.Error(f"{'more' if None in row else 'fewer'} fields than the header has")
            yield f"{path}:{rows.reader.line_num}", row[column]
    except csv.Error as error:
        raise _unreadable(f"{path}:{rows.reader.line_num}", error) from error


def _parquet_values(path: Path, column: str) -> Iterator[tuple[str, object]]:
    from pyarrow.parquet import ParquetFile

    with _opened(path) as file:
        table = ParquetFile(file)
        check_column(table.schema_arrow.names, column, path)
        batches = table.iter_batches(64, columns=[column])
        values = (value for batch in batches for value in batch[0].to_pylist())
        yield from ((f"{path}:{number}", value) for number, value in enumerate(values, 1))


RECORDS: dict[str, Callable[[Path, str], Iterator[tuple[str, object]]]] = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json_values),
    **dict.fromkeys((".csv", ".tsv"), _csv_values),
    ".parquet": _parquet_values,
}
"""Reader of a column's values, each with its place, by the end of a file's name."""


def _plain_documents(path: Path, column: str) -> Iterator[tuple[str, object]]:
    lines: list[str] = []
    for line in read_lines(path):
        if line.strip() != SEPARATOR:
            lines.append(line)
        else:
            yield str(path), "".join(lines)
            lines = []
    yield str(path), "".join(lines)


def _opened(path: Path) -> IO[bytes]:
    """A file without its compression; `fsspec.open` would read a name with `::` as a chain of addresses."""
    import fsspec

    compression = COMPRESSED.get(path.suffix.lower())
    return fsspec.filesystem("file").open(str(path), "rb", compression=compression)


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file with their ends unchanged, without a byte order mark.

    Raises InputError where the file cannot be read, with the position of a byte that is not UTF-8.
    """
    offset = 0
    try:
        with _opened(path) as file:
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
    return from_tables("text", ["saved", column, *map(stamp, files)], saved, column, root, len(files))
