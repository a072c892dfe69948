"""The results of a run in its folder: its measurements, and what is made from all of them.

evaluation/
  measurements/               a file for each measurement, with what each document or example gave
  lengths.json                all their rows, flat
  lengths.csv  lengths.md     the same for a spreadsheet, and as tables
  lengths.png  lengths.svg    the same as curves
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from zoo.errors import InputError, Problem
from zoo.evaluation.exports import as_csv, as_markdown
from zoo.evaluation.measurement import (
    EVALUATION,
    LOCK,
    MEASUREMENTS,
    Measurement,
    flat_rows,
    locked,
    read_measurements,
    store,
)
from zoo.evaluation.plot import plot_lengths
from zoo.files import atomic_write
from zoo.runs.folder import RESULTS

EXPORTS = (".csv", ".md", ".png", ".svg")


def store_results(folder: Path, measurements: Sequence[Measurement]) -> None:
    """Store measurements in a run folder, and make what is made from all that it has anew."""
    store(folder, measurements)
    file = folder / RESULTS
    with locked(folder):
        rows = flat_rows(read_measurements(folder))
        atomic_write(file, json.dumps(rows, indent=1, allow_nan=False) + "\n")
        atomic_write(file.with_suffix(".csv"), as_csv(rows))
        atomic_write(file.with_suffix(".md"), as_markdown(rows))
        plot_lengths(rows, file.with_suffix(".png"), file.with_suffix(".svg"))


def validate_results_folder(folder: Path) -> None:
    """Raises InputError, with all that is wrong, where results could not be stored. Ask before measuring."""
    problems = []

    def refuse(path: Path, why: str) -> None:
        problems.append(Problem(f"results cannot be written there: {why}", where=str(path)))

    try:
        _look(folder, refuse)
    except OSError as error:
        # Not even to be looked into; above all else that could be said of it.
        why = f"results cannot be written there: {error.strerror}"
        raise InputError(Problem(why, where=str(folder / EVALUATION))) from error
    if not problems or (folder / MEASUREMENTS).is_dir():
        try:
            read_measurements(folder)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)


def _look(folder: Path, refuse) -> None:
    for path in (folder / EVALUATION, folder / MEASUREMENTS):
        above = path if path.is_dir() else path.parent
        if path.exists() and not path.is_dir():
            return refuse(path, "it is a file; move it away")
        if not path.resolve().is_relative_to(folder.resolve()):
            # A run folder may be a stranger's: what is measured of it stays in it.
            return refuse(
                path, f"it is a link out of the run folder, to {path.resolve()}; put a folder there"
            )
        if above.is_dir() and not os.access(above, os.W_OK | os.X_OK):
            return refuse(path, f"no permission to write in {above}")
    file, lock = folder / RESULTS, folder / LOCK
    for path in (file, *map(file.with_suffix, EXPORTS), lock):
        if path.is_dir():
            refuse(path, "it is a folder; move it away")
    if lock.is_symlink():
        refuse(lock, "it is a link; remove it")  # it would empty what it points to
    elif lock.is_file() and not os.access(lock, os.R_OK | os.W_OK):
        refuse(lock, "no permission to write it")
    return None
