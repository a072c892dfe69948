"""Reading metrics.csv, which grows by a line for each logged step and may end in the midst of one."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from zoo.errors import InputError, Problem
from zoo.files import read_bytes

MAX_BYTES = 256 << 20


def read_metrics(file: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and the complete rows of a metrics.csv; nothing where there is none.

    Only a line with its end is complete: of one that was cut off when the run was killed the last number may
    look like another.

    Raises:
        InputError: it cannot be read, or is not what a run has written.
    """
    if not file.exists():
        return [], []
    raw = read_bytes(file, MAX_BYTES)
    try:
        if not raw.startswith(b"step") and not b"step".startswith(raw):
            raise ValueError("it does not begin with step")
        text = raw[: raw.rfind(b"\n") + 1].decode("utf-8")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        columns = next(reader, [])
        rows = []
        for cells in reader:
            rows.append(dict(zip(columns, cells, strict=False)))
            if len(cells) != len(columns) or not rows[-1].get("step", "").isdecimal():
                raise ValueError(f"line {reader.line_num} is not as a run writes it")
    except (ValueError, csv.Error) as error:
        raise InputError(Problem(f"cannot be read ({error}); move it away", where=str(file))) from error
    return columns, rows
