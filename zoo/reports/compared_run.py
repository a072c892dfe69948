"""What a comparison reads of a run: its recipe, its card, its measurements, and how fast it trained."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem
from zoo.evaluation.measurement import Measurement, flat_rows
from zoo.evaluation.store import read_measurements
from zoo.recipe import resolve
from zoo.recipe.encoding import check_encoding
from zoo.recipe.schema import section_class
from zoo.recipe.sections import DataConfig
from zoo.reports.commands import command
from zoo.runs.card import read_card
from zoo.runs.folder import CARD, METRICS, RECIPE, nearest_run_hint, stored_recipe
from zoo.runs.metrics_csv import read_metrics

MANY_RUNS = 20
"""Runs in a folder that are named."""
CHECKPOINT = "checkpoints/last.ckpt"
"""Of a run, the state that is compared: the one that it ended with."""
SPEED = "train/tokens_per_second"


Row = dict[str, Any]
"""One measurement at one length, as `Measurement.flat` gives it, with the units of its paired differences."""


@dataclass(frozen=True)
class Run:
    """A run as it lies on disk.

    `path` is the folder as it was given. `recipe` is the resolved one; what has become a key since it was
    made is at its default. `measurements` are those of its last checkpoint; `left_out` says which others
    there are. `speed` is the median of the tokens per second of its training, None where none were logged.
    """

    path: str
    recipe: dict[str, Any]
    card: dict[str, Any]
    measurements: tuple[Measurement, ...] = ()
    left_out: tuple[str, ...] = ()
    speed: float | None = None

    @cached_property
    def rows(self) -> list[Row]:
        return flat_rows(self.measurements, units=True)

    def of(self, kind: tuple[str, str, str]) -> list[Row]:
        """The rows of one kind of measurement."""
        return flat_rows((one for one in self.measurements if one.kind == kind), units=True)

    @property
    def seed(self) -> int:
        return self.recipe["seed"]

    @property
    def label(self) -> str:
        """Its encoding in a word, as its rows have it."""
        return str(self.card.get("encoding") or self.recipe["model"]["encoding"])


def read_runs(paths: Sequence[Path], evaluated: bool = True, wanted: Sequence[str] = ()) -> list[Run]:
    """Read runs; a folder given twice is read once.

    Args:
        evaluated: whether one that was not evaluated is a problem.
        wanted: words of the `evaluate` command in the message.

    Raises:
        InputError: everything that cannot be read, of all of them.
    """
    folders: dict[Path, Path] = {}
    runs, problems = [], []
    for path in paths:
        try:
            folders.setdefault(path.resolve(), path)
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links that go round
            problems.append(Problem(f"no such run folder ({error})", where=str(path)))
    for path in folders.values():
        try:
            runs.append(_read(path, evaluated, wanted))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return runs


def _read(path: Path, evaluated: bool, wanted: Sequence[str]) -> Run:
    try:
        return _read_folder(path, evaluated, wanted)
    except OSError as error:
        where = str(error.filename or path)
        raise InputError(Problem(f"cannot be read ({error.strerror})", where=where)) from error


def _read_folder(path: Path, evaluated: bool, wanted: Sequence[str]) -> Run:
    if not path.is_dir():
        there = (
            "a file; compare takes run folders"
            if path.exists()
            else f"no such run folder{nearest_run_hint(path)}"
        )
        raise InputError(Problem(there, where=str(path)))
    if not (path / RECIPE).exists() and not (path / CARD).exists():
        runs = sorted(str(file.parent) for file in path.glob(f"*/{CARD}"))
        more = f" and {len(runs) - MANY_RUNS} more" if len(runs) > MANY_RUNS else ""
        inside = f"; the runs in it: {', '.join(runs[:MANY_RUNS])}{more}" if runs else ""
        raise InputError(Problem(f"not a run: neither {RECIPE} nor {CARD} is in it{inside}", where=str(path)))
    problems: list[Problem] = []

    def attempt(read: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return read()
        except InputError as error:
            problems.extend(error.problems)
            return otherwise

    recipe = attempt(lambda: validated_recipe(path), {})
    card = attempt(lambda: read_card(path), {})
    speed = attempt(lambda: training_speed(path / METRICS), None)
    measurements = attempt(lambda: read_measurements(path), None)
    kept, left_out = _of_last_checkpoint(measurements or [], card)
    if measurements is not None and not kept and evaluated and not problems:
        after = f" ({'; '.join(left_out)})" if measurements else ""
        remedy = command(["evaluate", str(path), *wanted])
        problems.append(Problem(f"was not evaluated{after}; do it with: {remedy}", where=str(path)))
    if problems:
        raise InputError(problems)
    return Run(str(path), recipe, card, kept, left_out, speed)


def validated_recipe(folder: Path) -> dict[str, Any]:
    """A run's resolved recipe; what a plugin brings stands in it as it was stored.

    Raises:
        InputError: it cannot be read, or is no recipe.
    """
    stored = stored_recipe(folder)
    model = stored.get("model")
    if not isinstance(model, dict) or "encoding" not in model:
        raise InputError(Problem("not the recipe of a run: no model.encoding", where=str(folder / RECIPE)))
    # What an encoding's plugin brings is not read for a comparison, and what was evaluated the rows say.
    plain = {key: value for key, value in stored.items() if key not in ("plugins", "evaluate")}
    try:
        resolved = resolve(
            {**plain, **_known_sections(stored), "model": {**model, "encoding": "none"}}
        ).as_dict()
    except InputError as error:
        where = str(folder / RECIPE)
        raise InputError([Problem(p.message, key=p.key, where=where) for p in error.problems]) from error
    encoding, faults = check_encoding(model["encoding"], ("model", "encoding"))
    kept = {key: stored[key] for key in ("plugins", "evaluate", *_known_sections(stored)) if key in stored}
    resolved["model"]["encoding"] = model["encoding"] if faults else encoding
    return resolved | kept


def _known_sections(stored: dict[str, Any]) -> dict[str, Any]:
    """Sections that are known in place of those that name a plugin's dataset, task, optimizer or schedule."""
    sections = {
        key: stored[key] for key in ("data", "task", "optimizer") if isinstance(stored.get(key), dict)
    }
    unknown = {key for key, value in sections.items() if section_class(key, value) is None}
    found: dict[str, Any] = {}
    if unknown & {"data", "task"} and "data" in sections:
        common = {key: value for key, value in sections["data"].items() if key in DataConfig.model_fields}
        found |= {"data": {**common, "name": "max_index"}, "task": {"name": "max_index"}}
    if "optimizer" in unknown:
        found["optimizer"] = {"lr": sections["optimizer"].get("lr")}
    return found


def _of_last_checkpoint(
    measurements: list[Measurement], card: dict[str, Any]
) -> tuple[tuple[Measurement, ...], tuple[str, ...]]:
    """The measurements of the state that a run ended with, and what is said of the others."""
    last = [one for one in measurements if one.checkpoint == CHECKPOINT]
    kept = tuple(one for one in last if one.step == card.get("steps"))
    others = sorted({one.checkpoint for one in measurements if one.checkpoint != CHECKPOINT})
    steps = sorted({str(one.step) for one in last if one.step != card.get("steps")})
    left_out = [f"measurements of {', '.join(others)} are left out"] if others else []
    if steps:
        now = f"it is at step {card.get('steps')} now"
        left_out.append(f"measurements of step {', '.join(steps)} are left out: {now}")
    return kept, tuple(left_out)


def training_speed(file: Path) -> float | None:
    """Tokens per second of the training: the median of those logged, which a slow start does not move."""
    _, rows = read_metrics(file)  # none where `logging` does not name csv
    try:
        values = [float(row[SPEED]) for row in rows if row.get(SPEED)]
    except ValueError as error:
        raise InputError(Problem(f"cannot be read ({error})", where=str(file))) from error
    values = [value for value in values if math.isfinite(value)]
    return statistics.median(values) if values else None
