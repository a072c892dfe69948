"""The rows of an evaluation as they lie in a run folder: the one place that knows what they must hold.

Nothing heavy is imported: `compare`, `sweep` and `list` read them too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem
from zoo.evaluation.curves import MAIN
from zoo.files import read_json

Row = dict[str, Any]

COUNTS = ("documents", "examples", "samples", "tokens")
"""What stands behind a measure: the first of these that every row has."""
NEEDED = {
    "encoding": str, "checkpoint": str, "step": int, "protocol": str, "length": int, "train_length": int,
}  # fmt: skip
"""What the values of every row are."""
KINDS: dict[str, type | tuple[type, ...]] = {
    "targets": str, "parameters": dict, "changed": dict, "note": str, "run": str, "seed": int,
    **{f"{measure}{end}": (int, float) for measure in MAIN for end in ("", "_low", "_high")},
    **dict.fromkeys([*COUNTS, "seen_in_training", "tokens_per_second", "peak_memory_mb"], (int, float)),
}  # fmt: skip
"""What the other values are, where they are there and not null."""
ADVICE = "; move it away and evaluate again"
ABOVE_ZERO = ("length", "train_length")


def read_rows(file: Path) -> list[Row]:
    """The rows in a file of results; none where there is no file.

    Raises:
        InputError: it cannot be read, or what it holds was not written by an evaluation.
    """
    if not os.path.lexists(file):
        return []
    rows = read_json(file, advice=ADVICE)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(Problem(f"not the results of an evaluation{ADVICE}", where=str(file)))
    lacking = sorted({key for row in rows for key in NEEDED if row.get(key) is None})
    wrong = sorted({key for row in rows for key in _wrong(row)})
    if lacking or wrong:
        told = [f"rows without {', '.join(lacking)}"] if lacking else []
        told += [f"not as it is written: {', '.join(wrong)}"] if wrong else []
        problem = f"not the results of an evaluation, or an earlier version's ({'; '.join(told)})"
        raise InputError(Problem(f"{problem}{ADVICE}", where=str(file)))
    return rows


def _wrong(row: Row) -> list[str]:
    kinds = [*NEEDED.items(), *KINDS.items()]
    wrong = [key for key, kind in kinds if row.get(key) is not None and not is_a(row[key], kind)]
    return wrong + [key for key in ABOVE_ZERO if isinstance(row.get(key), int) and row[key] < 1]


def is_a(value: Any, kind: type | tuple[type, ...]) -> bool:
    """Whether a value of a JSON file is of a kind; true and false are no numbers."""
    return isinstance(value, kind) and (not isinstance(value, bool) or kind is bool)
