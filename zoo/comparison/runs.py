"""The runs of a comparison: recipe, card, measurements, training speed; and commands that name them."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from zoo.console import command
from zoo.errors import InputError, Problem, collect, shorten
from zoo.evaluation.measurement import Measurement
from zoo.evaluation.store import read_measurements
from zoo.recipe import recipe_of_run
from zoo.runs.card import read_card
from zoo.runs.folder import CARD, LAST, METRICS, RECIPE, TUNED, nearest_run_hint, stored_recipe
from zoo.runs.metrics_csv import read_metrics

UNKNOWN = "not known"
SPEED, VALIDATION = "train/tokens_per_second", "val/loss"


@dataclass(frozen=True)
class RunInfo:
    """A run.

    Attributes:
        path: the folder as the user gave it.
        recipe: resolved; keys that are newer than the run have their defaults.
        measurements: of its last checkpoint.
        left_out: the other measurements, as text.
        speed: median of the logged training tokens per second; None where none were logged.
        tuned: the grid from which a sweep chose this run's values by validation, these values, and the losses
            of all by seed; empty without a grid.
        validation: the validation loss in nats, by step.
        origin: what a study has stored of the training: seconds, code and machine.
    """

    path: str
    recipe: dict[str, Any]
    card: dict[str, Any]
    measurements: tuple[Measurement, ...] = ()
    left_out: tuple[str, ...] = ()
    speed: float | None = None
    tuned: dict[str, Any] = field(default_factory=dict)
    validation: dict[int, float] = field(default_factory=dict)
    origin: dict[str, Any] = field(default_factory=dict)

    @property
    def grid(self) -> dict[str, list[Any]]:
        """The values of each key of the grid."""
        return self.tuned.get("grid", {})

    @property
    def seed(self) -> int:
        return self.recipe["seed"]

    @property
    def label(self) -> str:
        """Its encoding as text."""
        return str(self.card.get("encoding") or self.recipe["model"]["encoding"])

    @property
    def data(self) -> str:
        """The data in its recipe: the name of the dataset, and of a user's text the file or folder."""
        data = self.recipe["data"]
        return f"{data['name']} {PurePath(data['root']).name}" if data["name"] == "text" else data["name"]

    @property
    def trained_on(self) -> str:
        """The data of its training; those in the recipe of an imported model are for its evaluation."""
        return UNKNOWN if self.card.get("imported") else self.data

    @property
    def scored_on(self) -> str:
        """The data of its measurements."""
        own = {PurePath(one.parameters.get("data", self.data)).name for one in self.measurements}
        return ", ".join(sorted(own))


def read_runs(paths: Sequence[Path], evaluated: bool = True) -> list[RunInfo]:
    """Read runs; a folder given twice is read once.

    Args:
        paths: run folders, or Parquet files of stored runs.
        evaluated: whether a run without measurements is a problem.

    Raises:
        InputError: every run that cannot be read.
    """
    runs: dict[Path, RunInfo] = {}
    problems: list[Problem] = []
    for path in paths:
        with collect(problems):
            if path.suffix == ".parquet":
                from zoo.comparison import stored

                runs |= {path / run.path: run for run in stored.read(path)}
            elif (resolved := Path(os.path.realpath(path))) not in runs:
                runs[resolved] = _read(path, evaluated)
    if problems:
        raise InputError(problems)
    return [*runs.values()]


def _read(path: Path, evaluated: bool) -> RunInfo:
    if not path.is_dir():
        raise InputError(Problem(f"no such run folder{nearest_run_hint(path)}", where=str(path)))
    if not (path / RECIPE).exists() and not (path / CARD).exists():
        runs = sorted(str(file.parent) for file in path.glob(f"*/{CARD}"))
        inside = f"; the runs in it: {shorten(', '.join(runs), 1000)}" if runs else ""
        raise InputError(Problem(f"not a run: neither {RECIPE} nor {CARD} is in it{inside}", where=str(path)))
    problems: list[Problem] = []
    with collect(problems):
        run = run_info(path)
    with collect(problems):
        measurements = read_measurements(path)
    if problems:
        raise InputError(problems)
    kept, others, now = [], {}, run.card.get("steps")
    for one in measurements:
        if one.checkpoint != str(LAST):
            others[f"measurements of {one.checkpoint} are left out"] = None
        elif one.step != now:
            others[f"measurements of step {one.step} are left out: it is at step {now} now"] = None
        else:
            kept.append(one)
    if not kept and evaluated:
        after = f" ({'; '.join(others)})" if others else ""
        remedy = evaluate_command([str(path)])
        raise InputError(Problem(f"was not evaluated{after}; do it with: {remedy}", where=str(path)))
    return replace(run, measurements=tuple(kept), left_out=tuple(others))


def run_info(folder: Path) -> RunInfo:
    """A run without its measurements.

    Raises:
        InputError: every file that cannot be read.
    """
    problems: list[Problem] = []
    with collect(problems):
        recipe = validated_recipe(folder)
    with collect(problems):
        card = read_card(folder)
    with collect(problems):
        metrics = read_metrics(folder / METRICS)[1]
    if problems:
        raise InputError(problems)
    speed, validation = training_speed(metrics), validation_losses(metrics)
    tuned = json.loads((folder / TUNED).read_text()) if (folder / TUNED).is_file() else {}
    return RunInfo(str(folder), recipe, card, speed=speed, tuned=tuned, validation=validation)


def validated_recipe(folder: Path) -> dict[str, Any]:
    """The resolved recipe of a run.

    Raises:
        InputError: it cannot be read, or is not a recipe.
    """
    return validated(stored_recipe(folder), str(folder / RECIPE))


def validated(stored: dict[str, Any], where: str) -> dict[str, Any]:
    """A stored recipe with the defaults of newer keys; sections of a plugin stay as they were stored, since
    no plugin is imported.

    Raises:
        InputError: it is not a recipe.
    """
    try:
        recipe = recipe_of_run({key: value for key, value in stored.items() if key != "evaluate"}).as_dict()
    except InputError as error:
        raise InputError([Problem(p.message, key=p.key, where=where) for p in error.problems]) from error
    return recipe | {key: stored[key] for key in ("evaluate",) if key in stored}


def training_speed(metrics: Iterable[Mapping[str, str]]) -> float | None:
    """Median of the logged training tokens per second; None where none were logged."""
    speeds = [float(row[SPEED]) for row in metrics if row.get(SPEED)]
    finite = [speed for speed in speeds if math.isfinite(speed)]
    return statistics.median(finite) if finite else None


def validation_losses(metrics: Iterable[Mapping[str, str]]) -> dict[int, float]:
    """The logged validation loss in nats, by step."""
    return {int(row["step"]): float(row[VALIDATION]) for row in metrics if row.get(VALIDATION)}


def options(protocols: Sequence[str] | None, lengths: Iterable[int] | None) -> list[str]:
    """The words that choose protocols and lengths."""
    chosen = ["--protocol", ",".join(protocols)] if protocols else []
    return chosen + (["--lengths", ",".join(map(str, lengths))] if lengths else [])


def evaluate_command(
    paths: Sequence[str], protocols: Sequence[str] | None = None, lengths: Sequence[int] | None = None
) -> str:
    return command("evaluate", *paths, *options(protocols, lengths))
