"""What a comparison reads of a run: its recipe, its card, its measurements, and how fast it trained."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem, collect, shorten
from zoo.evaluation.measurement import Measurement
from zoo.evaluation.store import read_measurements
from zoo.recipe import resolve
from zoo.recipe.encoding import check_encoding
from zoo.recipe.schema import section_class
from zoo.recipe.sections import DataConfig
from zoo.reports.commands import command
from zoo.runs.card import read_card
from zoo.runs.folder import CARD, METRICS, RECIPE, nearest_run_hint, stored_recipe
from zoo.runs.metrics_csv import read_metrics

CHECKPOINT = "checkpoints/last.ckpt"
"""Of a run, the state that is compared: the one that it ended with."""
SPEED = "train/tokens_per_second"
VARIES = "differs"


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
        return [row for rows in self._by_kind.values() for row in rows]

    def of(self, kind: tuple[str, str, str]) -> list[Row]:
        """The rows of one kind of measurement."""
        return self._by_kind.get(kind, [])

    @cached_property
    def _by_kind(self) -> dict[tuple[str, str, str], list[Row]]:
        found: dict[tuple[str, str, str], list[Row]] = {}
        for one in self.measurements:
            found.setdefault(one.kind, []).extend(one.flat(units=True))
        return found

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
    runs: dict[Path, Run] = {}
    problems: list[Problem] = []
    for path in paths:
        with collect(problems):
            try:
                # RuntimeError: links that go round; ValueError: a null character.
                if (resolved := path.resolve()) not in runs:
                    runs[resolved] = _read(path, evaluated, wanted)
            except OSError as error:
                where = str(error.filename or path)
                raise InputError(Problem(f"cannot be read ({error.strerror})", where=where)) from error
            except (RuntimeError, ValueError) as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(Problem(f"no such run folder ({error})", where=str(path))) from error
    if problems:
        raise InputError(problems)
    return [*runs.values()]


def _read(path: Path, evaluated: bool, wanted: Sequence[str]) -> Run:
    if not path.is_dir():
        if path.exists():
            raise InputError(Problem("a file; compare takes run folders", where=str(path)))
        raise InputError(Problem(f"no such run folder{nearest_run_hint(path)}", where=str(path)))
    if not (path / RECIPE).exists() and not (path / CARD).exists():
        runs = sorted(str(file.parent) for file in path.glob(f"*/{CARD}"))
        inside = f"; the runs in it: {shorten(', '.join(runs), 1000)}" if runs else ""
        raise InputError(Problem(f"not a run: neither {RECIPE} nor {CARD} is in it{inside}", where=str(path)))
    problems: list[Problem] = []
    with collect(problems):
        recipe = validated_recipe(path)
    with collect(problems):
        card = read_card(path)
    with collect(problems):
        speed = training_speed(path / METRICS)
    with collect(problems):
        measurements = read_measurements(path)
    if problems:
        raise InputError(problems)
    kept, left_out = _of_last_checkpoint(measurements, card)
    if not kept and evaluated:
        after = f" ({'; '.join(left_out)})" if measurements else ""
        remedy = command(["evaluate", str(path), *wanted])
        raise InputError(Problem(f"was not evaluated{after}; do it with: {remedy}", where=str(path)))
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


def about(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """What runs share, for the reader of a report: names and values."""
    for name, read in _ABOUT.items():
        try:
            value = common(read(run) for run in runs)
        except (KeyError, TypeError):  # of a run whose recipe or card cannot be read
            continue
        if value is not None:
            yield name, value if isinstance(value, str) else f"{value:,}"
    yield "seeds", ", ".join(map(str, sorted({run.seed for run in runs})))
    if len(paths := {run.path for run in runs}) > 1:
        yield "runs", str(len(paths))


_ABOUT = {
    "task": lambda run: run.recipe["task"]["name"],
    "data": lambda run: run.recipe["data"]["name"],
    "vocabulary": lambda run: run.recipe["data"].get("vocab_size"),
    "model": lambda run: "{kind}, {num_layers} layers of width {d_model}, {num_heads} heads".format(
        **run.recipe["model"]
    ),
    "parameters without the encoding's": lambda run: run.card["parameters"]["other"],
    "trained length (tokens)": lambda run: run.recipe["data"]["sequence_length"],
    "sequences per step": lambda run: run.recipe["data"]["batch_size"],
    "steps": lambda run: run.card["steps"],
    "tokens seen": lambda run: run.card["tokens_seen"],
}


def common(values: Iterable[Any]) -> Any:
    """The value that all have, or that it differs."""
    values = list(values)
    return values[0] if all(value == values[0] for value in values) else VARIES
