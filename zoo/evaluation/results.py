"""What a run's evaluations gave, kept in its folder: earlier results stay until they are measured again.

evaluation/
  lengths.json                one row for each checkpoint, change, protocol, its parameters and length
  lengths.csv  lengths.md     the same for a spreadsheet, and as tables
  lengths.png  lengths.svg    the same as curves
  units.json                  what each document or example gave, for the intervals of differences
  earlier.json                rows whose place in lengths.json went to a measurement on other targets
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from zoo.errors import InputError, Problem
from zoo.evaluation.exports import as_csv, as_markdown
from zoo.evaluation.plot import plot_lengths
from zoo.evaluation.stored import Row, read_rows
from zoo.evaluation.units import UNITS, UNITS_FILE, key_of, read_units, units_as_json, without_units
from zoo.files import atomic_write
from zoo.runs.folder import RESULTS

EXPORTS = (".csv", ".md", ".png", ".svg")
LOCK = ".lock"
EARLIER = "earlier.json"


class PassingNote(str):
    """A note that is told and not stored: of a length that the data cannot fill, whatever the model."""


def must_take_results(folder: Path) -> None:
    """Raises InputError, with all that is wrong, where results could not be stored. Ask before measuring."""
    file = folder / RESULTS
    inside, problems = file.parent, []

    def refuse(path: Path, why: str) -> None:
        problems.append(Problem(f"results cannot be written there: {why}", where=str(path)))

    try:
        if inside.exists() and not inside.is_dir():
            refuse(inside, "it is a file; move it away")
        elif not inside.resolve().is_relative_to(folder.resolve()):
            # A run folder may be a stranger's: what is measured of it stays in it.
            refuse(inside, f"it is a link out of the run folder, to {inside.resolve()}; put a folder there")
        else:
            above = inside if inside.is_dir() else folder
            if not os.access(above, os.W_OK | os.X_OK):
                refuse(inside, f"no permission to write in {above}")
            beside = (file.with_name(name) for name in (UNITS_FILE, EARLIER, LOCK))
            names = (file, *map(file.with_suffix, EXPORTS), *beside)
            for path in names:
                if path.is_dir():
                    refuse(path, "it is a folder; move it away")
            lock = names[-1]
            if lock.is_symlink():
                refuse(lock, "it is a link; remove it")  # it would empty what it points to
            elif lock.is_file() and not os.access(lock, os.R_OK | os.W_OK):
                refuse(lock, "no permission to write it")
    except OSError as error:
        # Not even to be looked into; above all else that could be said of it.
        problems[:] = [Problem(f"results cannot be written there: {error.strerror}", where=str(inside))]
    else:
        try:
            stored_rows(folder)
        except InputError as error:
            told = {problem.where for problem in problems}
            problems += [problem for problem in error.problems if problem.where not in told]
    if problems:
        raise InputError(problems)


def stored_rows(folder: Path) -> list[Row]:
    """What was measured before in FOLDER/evaluation/lengths.json.

    Raises:
        InputError: it cannot be read, or not what it replaced. Ask before measuring, so that no result is
            lost to it.
    """
    read_rows((folder / RESULTS).with_name(EARLIER))
    read_units((folder / RESULTS).with_name(UNITS_FILE))
    return read_rows(folder / RESULTS)


def store_rows(folder: Path, rows: list[Row]) -> None:
    """Merge with what was measured before: a measurement repeated replaces itself alone.

    One on other targets (of another `evaluate.max_tokens`, say) replaces it too, and the row before goes to
    earlier.json. A note that something could not be measured replaces no measurement. What an earlier step of
    the same checkpoint file gave goes: the run was resumed since. A `PassingNote` is left out.
    """
    rows = [row for row in rows if not isinstance(row.get("note"), PassingNote)]
    if not rows:
        return
    measured = {(key_of(row), str(row.get("targets"))): row[UNITS] for row in rows if UNITS in row}
    rows = [without_units(row) for row in rows]
    file = folder / RESULTS
    file.parent.mkdir(parents=True, exist_ok=True)
    with _sole_writer(file.with_name(LOCK)):
        steps = {row["checkpoint"]: row["step"] for row in rows}
        kept = [row for row in stored_rows(folder) if _is_of(row, steps)]
        known = {key_of(row): row for row in kept}
        replaced = []
        for row in rows:
            before = known.get(key_of(row))
            if before is not None and "note" not in before:
                if "note" in row:
                    continue
                if before.get("targets") not in (None, row.get("targets")):
                    replaced.append(before)
            known[key_of(row)] = row
        merged = sorted(known.values(), key=_place)
        if replaced:
            # Before the file that it is taken from: between the two it is in both, never in none.
            _keep_earlier(file.with_name(EARLIER), replaced, steps)
        units = file.with_name(UNITS_FILE)
        # Before the rows that it belongs to: units that agree with no row are left out by whoever reads them.
        by_unit = read_units(units) | measured
        if by_unit:
            atomic_write(units, units_as_json(merged, by_unit))
        atomic_write(file, _as_json(merged))
        atomic_write(file.with_suffix(".csv"), as_csv(merged))
        atomic_write(file.with_suffix(".md"), as_markdown(merged))
        plot_lengths(merged, file.with_suffix(".png"), file.with_suffix(".svg"))


@contextmanager
def _sole_writer(file: Path) -> Iterator[None]:
    """Two evaluations of one run may end at once, of two protocols for example."""
    lock = FileLock(file)
    # Some network file systems know no locks; there one writes as before.
    with suppress(NotImplementedError):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _keep_earlier(file: Path, replaced: list[Row], steps: dict[object, object]) -> None:
    before = [row for row in read_rows(file) if _is_of(row, steps)]
    known = {(*key_of(row), str(row.get("targets"))): row for row in [*before, *replaced]}
    atomic_write(file, _as_json(known[key] for key in sorted(known)))


def _is_of(row: Row, steps: dict[object, object]) -> bool:
    """Whether a row was measured on what is now in its checkpoint's file, as far as it is known."""
    return row["step"] == steps.get(row["checkpoint"], row["step"])


def _as_json(rows: Iterable[Row]) -> str:
    return json.dumps(list(rows), indent=1, allow_nan=False) + "\n"


def _place(row: Row) -> tuple[object, ...]:
    """Where a row stands: in the order of its key, but that a window of 64 comes before one of 512."""
    checkpoint, protocol, parameters, changed, length = key_of(row)
    # Texts and numbers take turns, so that like is compared with like.
    parts = re.split(r"(\d+(?:\.\d+)?)", parameters)
    by_number = tuple(float(part) if place % 2 else part for place, part in enumerate(parts))
    return checkpoint, protocol, by_number, parameters, changed, length
