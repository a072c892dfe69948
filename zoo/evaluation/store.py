"""The measurements in a run folder, a file for each.

evaluation/
  measurements/PROTOCOL-DIGEST.json   what was measured, with what each document or example gave
  lengths.json  .csv  .md  .png  .svg, index.html   made from all of them (zoo.reports.run_folder)
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import ValidationError

from zoo.errors import InputError, Problem, collect
from zoo.evaluation.measurement import Measurement
from zoo.files import atomic_write, read_json

EVALUATION = Path("evaluation")
MEASUREMENTS = EVALUATION / "measurements"
PAGE = EVALUATION / "index.html"
LOCK = EVALUATION / ".lock"
MAX_BYTES = 16 << 20
"""Of one file. Where what each document or example gave would not fit, it is left out."""


def read_measurements(folder: Path) -> list[Measurement]:
    """All measurements in a run folder, by checkpoint, protocol, parameters and change.

    Raises:
        InputError: with all files that cannot be read, or that no evaluation has written.
    """
    found: list[Measurement] = []
    problems: list[Problem] = []
    try:
        files = sorted(file for file in (folder / MEASUREMENTS).iterdir() if file.suffix == ".json")
    except FileNotFoundError:
        return []
    except OSError as error:
        where = str(folder / MEASUREMENTS)
        raise InputError(Problem(f"cannot be read: {error.strerror}", where=where)) from error
    for file in files:
        with collect(problems):
            found.append(_read(file))
    if problems:
        raise InputError(problems)
    return sorted(found, key=_order)


def store(folder: Path, measurements: Sequence[Measurement]) -> None:
    """Add measurements to those of a run folder.

    One that is there already gets the new rows, length by length; what an earlier step of the same checkpoint
    file gave is removed, since that checkpoint is no more. Evaluations that end at once wait for each other.
    """
    with locked(folder):
        stored = read_measurements(folder)
        steps = {one.checkpoint: one.step for one in measurements}
        current = {one.identity: one for one in stored if one.step == steps.get(one.checkpoint, one.step)}
        changed: dict[str, Measurement] = {}
        for one in measurements:
            before = current.get(one.identity)
            current[one.identity] = changed[one.identity] = before.updated(one) if before else one
        for one in changed.values():
            text = one.model_dump_json(exclude_unset=True) + "\n"
            if len(text) >= MAX_BYTES:
                text = one.without_units().model_dump_json(exclude_unset=True) + "\n"
            atomic_write(folder / MEASUREMENTS / one.file_name, text)
        kept = {one.file_name for one in current.values()}
        for one in stored:
            if one.file_name not in kept:
                (folder / MEASUREMENTS / one.file_name).unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """While no other process writes the results of a run."""
    (folder / LOCK).parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    # Some network file systems know no locks; there one writes without.
    with suppress(NotImplementedError):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _read(file: Path) -> Measurement:
    advice = "; move it away and evaluate again"
    try:
        return Measurement.model_validate(read_json(file, limit=MAX_BYTES, advice=advice))
    except ValidationError as error:
        keys = dict.fromkeys(".".join(map(str, fault["loc"])) or "all of it" for fault in error.errors())
        said = f"not a measurement as an evaluation writes it ({', '.join([*keys][:3])})"
        raise InputError(Problem(said + advice, where=str(file))) from error


def _order(measurement: Measurement) -> tuple[Any, ...]:
    """By identity, but that a window of 64 comes before one of 512."""
    parameters = json.dumps(measurement.parameters, sort_keys=True)
    # Texts and numbers take turns, so that like is compared with like.
    parts = re.split(r"(\d+(?:\.\d+)?)", parameters)
    by_number = tuple(float(part) if index % 2 else part for index, part in enumerate(parts))
    return measurement.checkpoint, measurement.protocol, by_number, measurement.identity


def validate_results_folder(folder: Path) -> None:
    """Raises InputError, with all that is wrong, where results could not be stored. Ask before measuring."""
    said = "results cannot be written there"
    try:
        problems = [Problem(f"{said}: {why}", where=str(path)) for path, why in _obstacles(folder)]
    except OSError as error:
        # Not even to be looked into.
        where = str(folder / EVALUATION)
        raise InputError(Problem(f"{said}: {error.strerror}", where=where)) from error
    if (folder / MEASUREMENTS).is_dir():
        with collect(problems):
            read_measurements(folder)
    if problems:
        raise InputError(problems)


def _obstacles(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in (folder / EVALUATION, folder / MEASUREMENTS):
        above = path if path.is_dir() else path.parent
        if path.exists() and not path.is_dir():
            yield path, "it is a file; move it away"
        elif not path.resolve().is_relative_to(folder.resolve()):
            # A run folder may be a stranger's: what is measured of it stays in it.
            yield path, f"it is a link out of the run folder, to {path.resolve()}; put a folder there"
        elif above.is_dir() and not os.access(above, os.W_OK | os.X_OK):
            yield path, f"no permission to write in {above}"
        else:
            continue
        return
    lock = folder / LOCK
    if lock.is_symlink():
        yield lock, "it is a link; remove it"  # it would empty what it points to
    elif lock.is_file() and not os.access(lock, os.R_OK | os.W_OK):
        yield lock, "no permission to write it"
