"""The runs of a comparison: recipe, card, measurements, training speed; and commands that name them."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from zoo.comparison import stored
from zoo.comparison.run_info import RunInfo, validated
from zoo.console import command
from zoo.errors import InputError, Problem, collect, shorten
from zoo.evaluation.store import read_measurements
from zoo.runs.card import read_card
from zoo.runs.folder import CARD, LAST, METRICS, RECIPE, TUNED, nearest_run_hint, stored_recipe
from zoo.runs.metrics_csv import read_metrics

SPEED, VALIDATION = "train/tokens_per_second", "val/loss"


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
            if path.suffix == stored.SUFFIX:
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
        recipe = validated(stored_recipe(folder), str(folder / RECIPE))
    with collect(problems):
        card = read_card(folder)
    with collect(problems):
        metrics = read_metrics(folder / METRICS)[1]
    if problems:
        raise InputError(problems)
    speed, validation = training_speed(metrics), validation_losses(metrics)
    tuned = json.loads((folder / TUNED).read_text()) if (folder / TUNED).is_file() else {}
    return RunInfo(str(folder), recipe, card, speed=speed, tuned=tuned, validation=validation)


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
    if not any(map(os.path.exists, paths)):
        return "the sweep of its study (--forget the entry first: a stored run has no checkpoint)"
    return command("evaluate", *paths, *options(protocols, lengths))
