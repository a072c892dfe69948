"""Reading metrics.csv, which grows by a line for each logged step and may end in the midst of one."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from zoo.errors import InputError, Problem
from zoo.files import read_bytes

MAX_BYTES = 256 << 20
FIRST = b"step"
"""The first column: how each file begins, however early it was cut off."""


def read_metrics(file: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and the complete rows of a metrics.csv; nothing where there is none.

    Only a line with its end is complete: of one that was cut off when the run was killed the last number may
    look like another.

    Raises:
        InputError: it cannot be read, or is not what a run has written.
    """
    try:
        if not file.exists():
            return [], []
        raw = read_bytes(file, MAX_BYTES)
        text = raw[: raw.rfind(b"\n") + 1].decode("utf-8")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        columns = next(reader, [])
        rows = []
        for cells in reader:
            if len(cells) != len(columns):
                raise ValueError(f"line {reader.line_num} has {len(cells)} values for {len(columns)} columns")
            rows.append(dict(zip(columns, cells, strict=True)))
            if not rows[-1].get("step", "").isdecimal():
                raise ValueError(f"line {reader.line_num} has no step")
        if not raw.startswith(FIRST) and not FIRST.startswith(raw):
            raise ValueError(f"it does not begin with {FIRST.decode()}")
    except InputError:
        raise
    except (OSError, ValueError, csv.Error) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise InputError(Problem(f"cannot be read ({cause}); move it away", where=str(file))) from error
    return columns, rows
