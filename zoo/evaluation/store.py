"""The measurements in a run folder, a file for each.

evaluation/
  measurements/PROTOCOL-DIGEST.json   a measurement, with the scores of each document or example
  measurements/PROTOCOL-DIGEST-LENGTH.jsonl   its examples at a length, where they are kept
  lengths.json                        the rows of all measurements
  lengths.csv  .md  .png  .svg, index.html   made from all measurements (zoo.reports.evaluate)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import ValidationError

from zoo.errors import InputError, Problem, collect
from zoo.evaluation.measurement import Measurement, flat_rows, merged
from zoo.files import atomic_write, read_json
from zoo.runs.folder import RESULTS

EVALUATION = Path("evaluation")
MEASUREMENTS = EVALUATION / "measurements"
PAGE = EVALUATION / "index.html"
LOCK = EVALUATION / ".lock"


def read_measurements(folder: Path) -> list[Measurement]:
    """All measurements in a run folder, by checkpoint and protocol.

    Raises:
        InputError: with all files that cannot be read, or that are not measurements.
    """
    found: list[Measurement] = []
    problems: list[Problem] = []
    for file in sorted((folder / MEASUREMENTS).glob("*.json")):
        with collect(problems):
            found.append(_read(file))
    if problems:
        raise InputError(problems)
    return sorted(found, key=_order)


def store(folder: Path, measurements: Sequence[Measurement]) -> None:
    """Add measurements to those of a run folder, and write `lengths.json` anew.

    A stored measurement gets the new rows, length by length. Measurements of an earlier step of the same
    checkpoint file are deleted. Concurrent evaluations wait for each other.
    """
    with locked(folder):
        stored = read_measurements(folder)
        steps = {one.checkpoint: one.step for one in measurements}
        valid = [one for one in stored if one.step == steps.get(one.checkpoint, one.step)]
        current, changed = merged([*valid, *measurements]), {one.identity for one in measurements}
        rows = json.dumps(flat_rows(sorted(current, key=_order)), indent=1, allow_nan=False)
        for one in current:
            if one.identity in changed:
                text = one.model_dump_json(exclude_unset=True) + "\n"
                atomic_write(folder / MEASUREMENTS / one.file_name, text)
        for name in {one.file_name for one in stored} - {one.file_name for one in current}:
            (folder / MEASUREMENTS / name).unlink(missing_ok=True)
        for one in (one for one in stored if one not in valid):
            for path in (folder / MEASUREMENTS).glob(f"{Path(one.file_name).stem}-*.jsonl"):
                path.unlink(missing_ok=True)
        atomic_write(folder / RESULTS, rows + "\n")


def store_lines(folder: Path, one: Measurement, lines: Iterable[dict[str, Any]]) -> None:
    """Write lines beside a measurement of one length as JSON Lines; no file where there are none."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if text:
        name = f"{Path(one.file_name).stem}-{one.rows[0].length}.jsonl"
        atomic_write(folder / MEASUREMENTS / name, text)


def locked(folder: Path) -> FileLock:
    """The lock of a run's results: `with locked(folder): ...`."""
    (folder / EVALUATION).mkdir(parents=True, exist_ok=True)
    return FileLock(folder / LOCK)


def validate_results_folder(folder: Path) -> None:
    """Raises InputError if results cannot be stored, or stored ones cannot be read: before measuring."""
    target = next(path for path in (folder / MEASUREMENTS, folder / EVALUATION, folder) if path.exists())
    if not os.access(target, os.W_OK | os.X_OK):
        raise InputError(Problem("results cannot be stored: no permission to write", where=str(target)))
    read_measurements(folder)


def _order(one: Measurement) -> tuple[str, ...]:
    return one.checkpoint, one.protocol, one.identity


def _read(file: Path) -> Measurement:
    advice = "; move it away and evaluate again"
    try:
        return Measurement.model_validate(read_json(file, advice=advice))
    except ValidationError as error:
        keys = dict.fromkeys(".".join(map(str, fault["loc"])) or "all of it" for fault in error.errors())
        message = f"not a measurement of this program ({', '.join([*keys][:3])})"
        raise InputError(Problem(message + advice, where=str(file))) from error
