"""The runs of a study in one Parquet file: a row for each run, measurement and length.

Columns are those of a measurement and of its row (`zoo.evaluation.measurement`), with a column for each
measure. `units` and `blocks` have the scores of each document or example. `about` is the rest of a run as
JSON, the same in all of its rows: recipe, card, training speed, validation losses and origin. Mappings are
JSON texts. A measure that is not finite is NaN; one that was not measured is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
from filelock import FileLock
from pyarrow import parquet

from zoo.comparison.run_info import RunInfo, validated
from zoo.errors import InputError, Problem
from zoo.evaluation.measurement import Measurement, Row, Units
from zoo.files import atomic_file

SUFFIX = ".parquet"
ABOUT = ("recipe", "card", "speed", "tuned", "validation", "origin")
"""The attributes of a run in the column `about`."""
HEAD = [name for name in Measurement.model_fields if name not in ("run", "rows")]
NESTED = ("changed", "parameters", "targets")
FIELDS = [*Row.model_fields]
_UNITS = pa.struct({
    name: pa.list_(pa.float64() if name in ("nats", "scores") else pa.int64()) for name in Units.model_fields
})  # fmt: skip


def read(file: Path) -> list[RunInfo]:
    """The runs in a file, with their measurements.

    Raises:
        InputError: it cannot be read, or was not written by `write`.
    """
    if not file.is_file():
        raise InputError(Problem("no such file", where=str(file)))
    try:
        rows = parquet.read_table(file).to_pylist()
        runs = [_run(path, [*own]) for path, own in groupby(rows, key=lambda row: row["path"])]
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise InputError(Problem(f"not a table of stored runs ({error})", where=str(file))) from error
    return [replace(run, recipe=validated(run.recipe, f"{file}: {run.path}")) for run in runs]


def write(file: Path, runs: Sequence[RunInfo]) -> None:
    """Replace the file by one with these runs."""
    rows = [row for run in runs for row in _rows(run)]
    measures = dict.fromkeys(name for row in rows for name in row if name not in _TYPES)
    schema = pa.schema([*_TYPES.items(), *((name, pa.float64()) for name in measures)])
    with atomic_file(file) as part:
        table = pa.Table.from_pylist(rows, schema)
        parquet.write_table(table, part, compression="zstd", compression_level=12)


def add(file: Path, run: RunInfo) -> None:
    """Add a run to a file, in place of one with the same path. Concurrent changes wait for each other."""
    _replace(file, run.path, run)


def remove(file: Path, path: str) -> None:
    """Remove the run with this path from a file."""
    _replace(file, path)


def _replace(file: Path, path: str, *runs: RunInfo) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_name(f".{file.name}.lock")):
        known = read(file) if file.exists() else []
        write(file, [*(one for one in known if one.path != path), *runs])


_TYPES: dict[str, Any] = {
    "path": pa.string(), "run": pa.string(),
    **{name: pa.string() for name in HEAD},
    **{name: pa.int64() for name in ("seed", "train_length", "step")},
    "higher_is_better": pa.bool_(),
    **{name: pa.int64() for name in FIELDS},
    **{name: pa.string() for name in ("note", "remark", "machine")},
    **{name: pa.float64() for name in ("seen_in_training", "tokens_per_second", "peak_memory_mb")},
    "units": _UNITS, "blocks": _UNITS, "about": pa.string(),
}  # fmt: skip


def _rows(run: RunInfo) -> list[dict[str, Any]]:
    about = json.dumps({name: getattr(run, name) for name in ABOUT}, separators=(",", ":"))
    made = []
    for one in run.measurements:
        head = one.model_dump(exclude_unset=True, exclude={"rows"})
        head |= {name: json.dumps(head.get(name, {})) for name in NESTED}
        for row in one.rows:
            own = row.model_dump(exclude_unset=True)
            measures = {name: _stored(own.pop(name)) for name in [*own] if name not in Row.model_fields}
            made.append({"path": run.path, **head, **own, **measures, "about": about})
    return made


def _stored(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _run(path: str, rows: Sequence[dict[str, Any]]) -> RunInfo:
    about = json.loads(rows[0]["about"])
    about["validation"] = {int(step): loss for step, loss in about["validation"].items()}
    found = groupby(rows, key=lambda row: [row[name] for name in ("run", *HEAD)])
    return RunInfo(path, measurements=tuple(_measurement([*own]) for _, own in found), **about)


def _measurement(rows: Sequence[dict[str, Any]]) -> Measurement:
    head = {name: value for name in ("run", *HEAD) if (value := rows[0][name]) is not None}
    head |= {name: json.loads(head[name]) for name in NESTED}
    return Measurement.model_validate({**head, "rows": [_row(row) for row in rows]})


def _row(row: dict[str, Any]) -> dict[str, Any]:
    known = {name: value for name in FIELDS if (value := row[name]) is not None}
    for name in ("units", "blocks"):
        if name in known:
            known[name] = {key: own for key, own in known[name].items() if own is not None}
    measures = {name: value for name, value in row.items() if name not in _TYPES and value is not None}
    return known | {name: None if math.isnan(value) else value for name, value in measures.items()}
