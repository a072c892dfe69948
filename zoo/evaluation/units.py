"""What each unit of a measurement gave: every document of a text, every example of a task.

A difference between two runs has an interval only where both are known unit by unit. The numbers lie beside
the rows, in FOLDER/evaluation/units.json, so that the rows stay small; each is known by its row's key and by
the digest of what was scored.

Nothing heavy is imported: `compare` reads them too.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem
from zoo.evaluation.curves import Row, parameters_text
from zoo.evaluation.stored import ADVICE, is_a
from zoo.files import read_json

UNITS = "units"
"""The key of a row under which its units are, from the measurement until they are stored beside it."""
UNITS_FILE = "units.json"
MAX_BYTES = 64 << 20
"""Of the file. What does not fit is left out, and a comparison says so."""

Units = dict[str, list[Any]]
"""`documents` (indices), `nats`, `tokens` and, of a likelihood, `bytes`; or `scores` of examples. One value
for each unit; None where it is not finite."""
Key = tuple[str, str, str, str, int]


def document_units(
    documents: Iterable[int], nats: Iterable[float], tokens: Iterable[float], sizes: Iterable[float] | None
) -> Units:
    """What each document adds to a loss."""
    units: Units = {
        "documents": [int(one) for one in documents],
        "nats": _numbers(nats),
        "tokens": _numbers(tokens),
    }
    return units | ({} if sizes is None else {"bytes": _numbers(sizes)})


def example_units(scores: Iterable[float]) -> Units:
    """The score of each example."""
    return {"scores": _numbers(scores)}


def _numbers(values: Iterable[float]) -> list[float | int | None]:
    # Ten digits are more than a loss in float32 has; a whole number needs no point.
    rounded = (float(f"{float(value):.10g}") for value in values)
    return [
        None if not math.isfinite(value) else int(value) if value == int(value) else value
        for value in rounded
    ]


def key_of(row: Row) -> Key:
    """What tells rows of one run apart: checkpoint, protocol, parameters, changes and length."""
    # An encoding that was changed after training is measured apart from the one that was trained.
    changed = json.dumps(row.get("changed") or {}, sort_keys=True)
    return str(row["checkpoint"]), row["protocol"], parameters_text(row), changed, row["length"]


def without_units(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != UNITS}


def read_units(file: Path) -> dict[tuple[Key, str], Units]:
    """The units in a file, by the row's key and the digest of its targets; none where there is no file.

    Raises:
        InputError: it cannot be read, or what it holds was not written by an evaluation.
    """
    if not os.path.lexists(file):
        return {}
    stored = read_json(file, limit=MAX_BYTES, advice=ADVICE)
    if not isinstance(stored, list) or not all(map(_is_entry, stored)):
        raise InputError(Problem(f"not what an evaluation writes{ADVICE}", where=str(file)))
    return {((*entry["row"],), entry["targets"]): entry["units"] for entry in stored}


def units_as_json(rows: Iterable[Row], known: dict[tuple[Key, str], Units]) -> str:
    """The file for some rows, from what is known of them; what belongs to no row is gone."""
    entries = []
    for row in rows:
        key, targets = key_of(row), row.get("targets")
        if "note" not in row and (key, targets) in known:
            entry = {"row": key, "targets": targets, "units": known[key, targets]}
            entries.append(json.dumps(entry, allow_nan=False, separators=(",", ":")))
    size = sum(len(entry) + 2 for entry in entries)
    # The largest go first: as many measurements as can be keep their units.
    for entry in sorted(entries, key=len, reverse=True):
        if size < MAX_BYTES:
            break
        entries.remove(entry)
        size -= len(entry) + 2
    return "[" + ",\n".join(entries) + "]\n"


def with_units(rows: Sequence[Row], known: dict[tuple[Key, str], Units]) -> list[Row]:
    """Rows, each with its units where they are known and come to what the row says."""
    made = []
    for row in rows:
        units = known.get((key_of(row), str(row.get("targets"))))
        made.append(row | {UNITS: units} if units is not None and _agree(units, row) else row)
    return made


def _agree(units: Units, row: Row) -> bool:
    """A row and its units are two files: only one of them may be of the last measurement."""
    if "note" in row:
        return False
    if "scores" in units:
        scores, value = units["scores"], row.get("accuracy")
        return value is not None and None not in scores and _same(sum(scores) / len(scores), value)
    nats, value = units["nats"], row.get("loss_nats")
    if value is None or None in nats:
        return value is None and None in nats
    return _same(sum(nats) / sum(units["tokens"]), value)


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not {"row", "targets", "units"} <= entry.keys():
        return False
    row, units = entry["row"], entry["units"]
    kinds = (str, str, str, str, int)
    if not isinstance(row, list) or len(row) != len(kinds) or not all(map(is_a, row, kinds)):
        return False
    if not isinstance(entry["targets"], str) or not isinstance(units, dict):
        return False
    names = {"scores"} if "scores" in units else {"documents", "nats", "tokens"}
    if not names <= units.keys() or not units.keys() <= {*names, "bytes"}:
        return False
    columns = list(units.values())
    if not all(isinstance(column, list) and column for column in columns):
        return False
    if len({len(column) for column in columns}) != 1:
        return False
    numbers = all(one is None or is_a(one, (int, float)) for column in columns for one in column)
    sizes = [one for name in ("documents", "tokens", "bytes") for one in units.get(name, [])]
    counted = None not in sizes and all(one >= 0 for one in sizes)
    return numbers and counted and sum(units.get("tokens", [1])) > 0
