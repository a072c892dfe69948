"""Reading metrics.csv, which grows by a line for each logged step and may end in the midst of one."""

from __future__ import annotations

import csv
from pathlib import Path

from zoo.errors import InputError, Problem


def read_metrics(file: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and the complete rows of a metrics.csv; nothing where there is none.

    Only a line with its end is complete: of one that was cut off when the run was killed the last number may
    look like another.

    Raises:
        InputError: it cannot be read, or is not what a run has written.
    """
    try:
        raw = file.read_bytes() if file.exists() else b""
        if not raw.startswith(b"step") and not b"step".startswith(raw):
            raise ValueError("it does not begin with step")
        lines = raw[: raw.rfind(b"\n") + 1].decode().splitlines()
        columns, *cells = csv.reader(lines, strict=True) if lines else [[]]
        rows = [dict(zip(columns, row, strict=True)) for row in cells]
        if not all(row["step"].isdecimal() for row in rows):
            raise ValueError("a step is not a number")
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(Problem(f"cannot be read ({error}); move it away", where=str(file))) from error
    return columns, rows
