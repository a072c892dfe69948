"""Whether a run folder can take the results of an evaluation, asked before anything is measured."""

from __future__ import annotations

import os
from pathlib import Path

from zoo.errors import InputError, Problem
from zoo.evaluation.measurement import (
    EVALUATION,
    LOCK,
    MEASUREMENTS,
    read_measurements,
)
from zoo.runs.folder import RESULTS

EXPORTS = (".csv", ".md", ".png", ".svg")


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
