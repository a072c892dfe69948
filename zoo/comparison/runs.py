"""The runs of a comparison: recipe, card, measurements and training speed; and commands that name them."""

from __future__ import annotations

import json
import math
import os
import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem, collect, shorten
from zoo.evaluation.measurement import Measurement
from zoo.evaluation.store import read_measurements
from zoo.recipe import recipe_of_run
from zoo.recipe.diff import ENCODING
from zoo.recipe.sections import EvaluateConfig
from zoo.runs.card import read_card
from zoo.runs.folder import CARD, LAST, METRICS, RECIPE, TUNED, nearest_run_hint, stored_recipe
from zoo.runs.metrics_csv import read_metrics

SPEED = "train/tokens_per_second"
Wanted = tuple[Sequence[str] | None, Sequence[int] | None]
"""Protocols and lengths; None for all."""


@dataclass(frozen=True)
class RunInfo:
    """A run.

    Attributes:
        path: the folder as the user gave it.
        recipe: resolved; keys that are newer than the run have their defaults.
        measurements: of its last checkpoint.
        left_out: the other measurements, as text.
        speed: median of the logged training tokens per second; None where none were logged.
        grid: the values of each key from which a sweep chose this run's by validation.
    """

    path: str
    recipe: dict[str, Any]
    card: dict[str, Any]
    measurements: tuple[Measurement, ...] = ()
    left_out: tuple[str, ...] = ()
    speed: float | None = None
    grid: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        return self.recipe["seed"]

    @property
    def label(self) -> str:
        """Its encoding as text."""
        return str(self.card.get("encoding") or self.recipe["model"]["encoding"])


def read_runs(paths: Sequence[Path], evaluated: bool = True, wanted: Wanted = (None, None)) -> list[RunInfo]:
    """Read runs; a folder given twice is read once.

    Args:
        evaluated: whether a run without measurements is a problem.
        wanted: protocols and lengths of the `evaluate` command in that message.

    Raises:
        InputError: every run that cannot be read.
    """
    runs: dict[Path, RunInfo] = {}
    problems: list[Problem] = []
    for path in paths:
        with collect(problems):
            if (resolved := Path(os.path.realpath(path))) not in runs:
                runs[resolved] = _read(path, evaluated, wanted)
    if problems:
        raise InputError(problems)
    return [*runs.values()]


def _read(path: Path, evaluated: bool, wanted: Wanted) -> RunInfo:
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
    last = [one for one in measurements if one.checkpoint == str(LAST)]
    kept = tuple(one for one in last if one.step == card.get("steps"))
    left_out = _left_out(measurements, card)
    grid = json.loads((path / TUNED).read_text())["grid"] if (path / TUNED).is_file() else {}
    run = RunInfo(str(path), recipe, card, kept, left_out, speed, grid)
    if not kept and evaluated:
        after = f" ({'; '.join(left_out)})" if left_out else ""
        remedy = evaluate_command([run], *wanted)
        raise InputError(Problem(f"was not evaluated{after}; do it with: {remedy}", where=str(path)))
    return run


def _left_out(measurements: Sequence[Measurement], card: dict[str, Any]) -> tuple[str, ...]:
    """The measurements of other checkpoints, and of an earlier step of the last one."""
    others = sorted({one.checkpoint for one in measurements if one.checkpoint != str(LAST)})
    earlier = {one.step for one in measurements if one.checkpoint == str(LAST)} - {card.get("steps")}
    steps = ", ".join(map(str, sorted(earlier)))
    left_out = [f"measurements of {', '.join(others)} are left out"] if others else []
    if steps:
        now = f"it is at step {card.get('steps')} now"
        left_out.append(f"measurements of step {steps} are left out: {now}")
    return tuple(left_out)


def validated_recipe(folder: Path) -> dict[str, Any]:
    """The resolved recipe of a run; sections of a plugin stay as they were stored, since none is imported.

    Raises:
        InputError: it cannot be read, or is not a recipe.
    """
    stored = stored_recipe(folder)
    model = stored.get("model")
    if not isinstance(model, dict) or "encoding" not in model:
        raise InputError(Problem("not the recipe of a run: no model.encoding", where=str(folder / RECIPE)))
    try:
        recipe = recipe_of_run({key: value for key, value in stored.items() if key != "evaluate"}).as_dict()
    except InputError as error:
        where = str(folder / RECIPE)
        raise InputError([Problem(p.message, key=p.key, where=where) for p in error.problems]) from error
    return recipe | ({"evaluate": stored["evaluate"]} if "evaluate" in stored else {})


def training_speed(file: Path) -> float | None:
    """Median of the logged training tokens per second; None where none were logged."""
    _, rows = read_metrics(file)
    try:
        values = [float(row[SPEED]) for row in rows if row.get(SPEED)]
    except ValueError as error:
        raise InputError(Problem(f"cannot be read ({error})", where=str(file))) from error
    values = [value for value in values if math.isfinite(value)]
    return statistics.median(values) if values else None


def command(words: Sequence[str]) -> str:
    return shlex.join(["python", "-m", "zoo", *words])


def options(protocols: Sequence[str] | None, lengths: Iterable[int] | None) -> list[str]:
    """The words that choose protocols and lengths."""
    chosen = ["--protocol", ",".join(protocols)] if protocols else []
    return chosen + (["--lengths", ",".join(map(str, lengths))] if lengths else [])


def evaluate_command(
    runs: Iterable[RunInfo],
    protocols: Sequence[str] | None = None,
    lengths: Iterable[int] | None = None,
    sets: Iterable[str] = (),
) -> str:
    """The command of an evaluation, with the plugins of the runs: they are code, and run where named only."""
    runs = list(runs)
    plugins = dict.fromkeys(plugin for run in runs for plugin in run.recipe.get("plugins") or ())
    sets = [*sets, *[f"plugins=[{', '.join(plugins)}]"] * bool(plugins)]
    words = ["evaluate", *(run.path for run in runs), *options(protocols, lengths)]
    return command([*words, *(word for one in sets for word in ("--set", one))])


def settings(parameters: dict[str, Any]) -> tuple[str, ...]:
    """The parameters of a measurement that are keys of `evaluate` and not their default, as `key=value`."""
    fields = EvaluateConfig.model_fields
    return tuple(
        f"evaluate.{key}={_word(value)}"
        for key, value in parameters.items()
        if key in fields and fields[key].default != value
    )


def changes(changed: dict[str, Any]) -> tuple[str, ...]:
    """The changes of an encoding after training, as `key=value`."""
    return tuple(f"{key}={_word(value)}" for key, value in changed.items() if key.startswith(ENCODING))


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
