"""The length sweep: trained models, scored at lengths they never saw."""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from zoo.data.source import DataSource
from zoo.errors import RunError, printable
from zoo.evaluation.pace import FAR, WORTH_SAYING, Pace, Stopwatch
from zoo.evaluation.protocols import PROTOCOLS, Measurement, OutOfTime, Place, Row
from zoo.evaluation.results import PassingNote, store_rows
from zoo.evaluation.subject import Subject, open_subjects
from zoo.evaluation.tables import SPEED, rows_as_text
from zoo.evaluation.units import without_units
from zoo.launch.ranks import is_distributed
from zoo.launch.team import Team, alone, device_for, join
from zoo.memory import (
    allocations_bounded,
    is_out_of_memory,
    peak_memory_mb,
    restart_peak_memory,
    shortage,
)
from zoo.progress import duration, progress_bar
from zoo.recipe import Recipe
from zoo.recipe.after_training import changed_label
from zoo.runs.folder import RESULTS
from zoo.tasks.task import Task

SECONDS_AT_RISK = 30.0
"""Results are stored as they come, but no oftener: the plots are drawn anew every time."""


def evaluate(
    paths: Sequence[Path],
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    sets: Sequence[str] = (),
    devices: int = 1,
) -> list[Row]:
    """Evaluate runs or checkpoints, write each one's results beside it, and print them in tables.

    Args:
        paths: run folders or checkpoint files.
        lengths: in tokens, in the order of the tables; by default those of each recipe.
        protocols: names; by default those of each recipe.
        sets: `key=value` changes to the recipes, for example where the data lies, or of an encoding what may
            change after training; such rows are kept beside those of the encoding as it was trained.
        devices: how many share the work. For each further one the command is started again; those that
            torchrun and SLURM have started are all taken.

    Raises:
        InputError: a path, a protocol or a change that cannot be used, data of another tokenizer, or a folder
            that takes no results.
        RunError: a process that shared the work has ended, or nothing at all could be measured.
        KeyboardInterrupt: stopped on demand; its text says what is kept, and how to go on.
    """
    progress = _Progress()
    try:
        return _evaluate_all(paths, lengths, protocols, sets, devices, progress)
    except KeyboardInterrupt:
        rest = [path for path in paths if path not in progress.done]
        again = _command(rest or paths, lengths, protocols, sets, devices)
        raise KeyboardInterrupt(f"interrupted; {progress.told()}; measure the rest: {again}") from None


@dataclass
class _Progress:
    """What an evaluation has come to: the paths of runs that are done, the folders with results of it."""

    done: list[Path] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def told(self) -> str:
        folders = ", ".join(dict.fromkeys(self.kept))
        return f"what was measured is kept in {folders}" if folders else "nothing was written"


def _command(
    paths: Sequence[Path],
    lengths: Sequence[int] | None,
    protocols: Sequence[str] | None,
    sets: Sequence[str],
    devices: int,
) -> str:
    """What evaluates these paths in the same way, for a shell."""
    words = ["python", "-m", "zoo", "evaluate", *map(str, paths)]
    if lengths:
        words += ["--lengths", ",".join(map(str, lengths))]
    if protocols:
        words += ["--protocol", ",".join(protocols)]
    words += [word for text in sets for word in ("--set", text)]
    return shlex.join([*words, *(["--devices", str(devices)] if devices > 1 else [])])


def _evaluate_all(
    paths: Sequence[Path],
    lengths: Sequence[int] | None,
    protocols: Sequence[str] | None,
    sets: Sequence[str],
    devices: int,
    progress: _Progress,
) -> list[Row]:
    # Processes that were started together meet first, so that one of them tells what is wrong.
    runs = None if is_distributed() else open_subjects(paths, lengths, protocols, sets)
    with join(devices, runs[0].task.recipe.trainer.accelerator if runs else "auto") as team:
        if runs is None:
            runs = open_subjects(paths, lengths, protocols, sets)
        rows: list[Row] = []
        told: list[Row] = []
        results = []
        several = len({run.folder.resolve() for run in runs}) > 1

        def keep(run: Subject, measured: list[Row]) -> None:
            rows.extend(map(without_units, measured))
            # Runs of one recipe may differ in what --set gave: only their folders tell them apart.
            told.extend(row | {"run": run.name} if several else row for row in measured)
            if team.rank == 0:
                store_rows(run.folder, measured)
                progress.kept.append(_shown((run.folder / RESULTS).parent))

        try:
            for run in runs:
                team.use(run.task.recipe.trainer.accelerator)
                measured = evaluate_task(
                    run.task, run.source, run.folder, run.checkpoint, lengths, protocols, team,
                    keep=partial(keep, run),
                )  # fmt: skip
                # The memory of the next one is measured without this one.
                run.task.cpu()
                progress.done.append(run.path)
                if not all(isinstance(row.get("note"), PassingNote) for row in measured):
                    results.append(_shown((run.folder / RESULTS).parent))
        finally:
            # What was measured is told, even if it cannot be stored or a later run fails.
            if rows and team.rank == 0:
                text = rows_as_text(told, lengths or ())
                print(f"{text}\n\n{SPEED}" if "tokens/s" in text else text, flush=True)
        if results and team.rank == 0:
            print(f"results, tables and plots: {', '.join(dict.fromkeys(results))}", flush=True)
    if team.rank == 0 and all("note" in row for row in rows):
        raise RunError(f"nothing could be measured: {'; '.join(dict.fromkeys(row['note'] for row in rows))}")
    return rows


def evaluate_task(
    task: Task,
    source: DataSource,
    folder: Path,
    checkpoint: Path,
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    team: Team | None = None,
    keep: Callable[[list[Row]], None] | None = None,
) -> list[Row]:
    """Evaluate one model; every process of the team gets all rows.

    A length that cannot be measured has a row with a `note` that says why: a `PassingNote` where the data is
    too short for it, no protocol can measure anything there, and the recipe does not ask for it.

    Args:
        folder: where `checkpoint` is shown from.
        keep: is given the rows that have come since it was last called: at the end, whatever ends it, and in
            between, so that no more than `SECONDS_AT_RISK` of work are lost to a process that is killed.
    """
    recipe = task.recipe
    lengths = sorted(set(lengths or recipe.evaluate.lengths))
    team = team or alone(device_for(recipe.trainer.accelerator))
    task.to(team.device).eval()
    todo = [
        (protocol, measurement)
        for protocol in dict.fromkeys(protocols or recipe.evaluate.protocols)
        for measurement in PROTOCOLS[protocol](task, source, lengths)
    ]
    limit = task.model.encoding.max_length
    reached = {one.length for _, measurement in todo for one in _chain(measurement) if one.note is None}
    # A sweep takes a run for finished once there is a row at every length of its recipe.
    reached.update(recipe.evaluate.lengths)

    def lasting(row: Row) -> Row:
        # Where the encoding ends is a result of the run; where the data ends is none.
        ended = limit is not None and row["length"] > limit
        if "note" not in row or row["length"] in reached or ended:
            return row
        return row | {"note": PassingNote(row["note"])}

    rows: list[Row] = []
    kept, kept_at = 0, time.monotonic()
    total = sum(_first(measurement).tokens for _, measurement in todo)
    bar = progress_bar(
        total, f"evaluating {recipe.name}", "token", unit_scale=True, leave=False, disable=team.rank > 0
    )
    course = _Course(recipe, team, bar)
    with bar:
        try:
            for protocol, measurement in todo:
                facts = {
                    "run": recipe.name,
                    "encoding": changed_label(recipe.as_dict()["model"]["encoding"], task.changed),
                    **({"changed": task.changed} if task.changed else {}),
                    "checkpoint": os.path.relpath(checkpoint, folder),
                    "step": task.card.get("steps"),
                    "seed": recipe.seed,
                    "protocol": protocol,
                }
                for row in _measured(measurement, protocol, course):
                    rows.append(facts | lasting(row) | {"train_length": recipe.data.sequence_length})
                if keep and time.monotonic() - kept_at > SECONDS_AT_RISK:
                    kept, fresh = len(rows), rows[kept:]
                    keep(fresh)
                    kept_at = time.monotonic()
        finally:
            if keep and rows[kept:]:
                keep(rows[kept:])
    return rows


def _chain(measurement: Measurement | None) -> Iterator[Measurement]:
    """The measurement itself, and what may be measured in its place."""
    while measurement is not None:
        yield measurement
        measurement = measurement.instead


def _first(measurement: Measurement) -> Measurement:
    """The measurement itself, or the first in its place that there is no note against."""
    while measurement.note is not None and measurement.instead is not None:
        measurement = measurement.instead
    return measurement


@dataclass(frozen=True)
class _Course:
    """What the measurements of one model share: who makes them, what they have taken, what they may take."""

    recipe: Recipe
    team: Team
    bar: tqdm
    pace: Pace = field(default_factory=Pace)

    def say(self, length: int, protocol: str, seconds: float) -> None:
        """Say, in the first process, how long a length takes."""
        if not self.bar.disable:
            about = f"evaluating {self.recipe.name}, {protocol}, length {length:,}: about {duration(seconds)}"
            tqdm.write(about, file=sys.stderr)
            sys.stderr.flush()


def _measured(measurement: Measurement | None, protocol: str, course: _Course) -> Iterator[Row]:
    """The rows of a measurement, and of what is measured in its place."""
    while measurement is not None:
        about = {"parameters": measurement.parameters, "length": measurement.length}
        note = measurement.note
        if note is None:
            rows = _measure(measurement, protocol, course)
            if not isinstance(rows, str):
                yield from (about | row for row in rows)
                return
            note = rows
            if measurement.instead is not None:
                course.bar.total += _first(measurement.instead).tokens
        yield about | {"note": note}
        measurement = measurement.instead


def _measure(measurement: Measurement, protocol: str, course: _Course) -> list[Row] | str:
    """The rows of one measurement; or a note, where memory or time does not suffice."""
    team, bar, config = course.team, course.bar, course.recipe.evaluate
    length, tokens, limit = measurement.length, measurement.tokens, config.max_seconds
    bar.set_description(f"evaluating {course.recipe.name}, length {length:,}", refresh=False)
    expected = course.pace.expected(length, tokens)
    if limit is not None and expected is not None and expected > FAR * limit:
        bar.total -= tokens
        return f"not begun for evaluate.max_seconds={limit:g} (about {expected:,.0f} s needed)"
    if expected is not None and expected >= WORTH_SAYING:
        course.say(length, protocol, expected)

    restart_peak_memory(team.device)
    measured, late = None, False
    watch = Stopwatch(tokens, limit, expected, partial(course.say, length, protocol))

    def advance(tokens: int) -> None:
        watch.read += tokens
        bar.update(tokens)

    try:
        with torch.inference_mode(), allocations_bounded(team.local_size):
            # Nobody begins, nor counts what memory is free, while another still works on what came before.
            team.barrier()
            watch.start()
            measured = measurement.measure(Place(team, advance, watch.goes_on))
    except OutOfTime:
        late = True
    except (RuntimeError, MemoryError) as error:
        # What another process has ended with may quote a lack of memory of its own.
        if isinstance(error, RunError) or not is_out_of_memory(error):
            raise
    seconds = watch.seconds
    own = measured is None and not late, peak_memory_mb(team.device), seconds / max(watch.read, 1)
    short, peaks, costs = zip(*team.gather(own), strict=True)
    if any(short) or late:
        # What the length would still have read is no time left.
        bar.total -= tokens - watch.read
    if any(short):
        note = shortage(team.device, team.local_size)
        smaller = config.batch_tokens >= 2 * length
        return note + ("; a smaller evaluate.batch_tokens may help" if smaller else "")
    course.pace.learn(length, max(costs))
    if late:
        needed = tokens * max(costs)
        return f"stopped after evaluate.max_seconds={limit:g} (about {needed:,.0f} s needed)"
    cost = {"tokens_per_second": watch.read / seconds, "peak_memory_mb": max(peaks)}
    # JSON has no word for the infinities that failed extrapolation may give.
    return [
        {key: value if _finite(value) else None for key, value in (row | cost).items()}
        for row in (measured if isinstance(measured, list) else [measured])
    ]


def _finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _shown(folder: Path) -> str:
    """Relative to where the user stands, where that is shorter."""
    return printable(min(str(folder), os.path.relpath(folder), key=len))
