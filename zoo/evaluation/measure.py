"""One model, measured by its protocols at all lengths: rows as they come, within memory and time."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from zoo.console import duration, progress_bar
from zoo.data.source import DataSource
from zoo.errors import RunError
from zoo.evaluation.measurement import Measurement, Row
from zoo.evaluation.protocols import Protocol, build_protocol
from zoo.evaluation.protocols.protocol import Execution, LengthPlan, MeasurementPlan, OutOfTime
from zoo.evaluation.timing import REPORT_FROM, TOO_LONG, CostByLength, ForeignLoad, Stopwatch
from zoo.launch.team import Team, alone, device_for
from zoo.memory import (
    allocations_bounded,
    is_out_of_memory,
    peak_memory_mb,
    restart_peak_memory,
    shortage,
)
from zoo.recipe import Recipe
from zoo.recipe.encoding import changed_label
from zoo.tasks.task import Task

SECONDS_AT_RISK = 30.0
"""Results are saved as they come, but no oftener: the plots are drawn anew every time."""


def measure(
    task: Task,
    source: DataSource,
    folder: Path,
    checkpoint: Path,
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    team: Team | None = None,
    save: Callable[[list[Measurement]], None] = lambda measured: None,
) -> list[Measurement]:
    """Measure one model; every process of the team gets all measurements.

    A length that cannot be measured has a row with a `note` that says why.

    Args:
        folder: what the measurements name `checkpoint` relative to.
        lengths, protocols: by default those of the recipe.
        save: called with what has come since its last call: at the end, whatever ends it, and in between, so
            that no more than `SECONDS_AT_RISK` of work are lost to a process that is killed.
    """
    recipe = task.recipe
    lengths = sorted(set(lengths or recipe.evaluate.lengths))
    team = team or alone(device_for(recipe.trainer.accelerator))
    task.to(team.device).eval()
    chosen = [
        build_protocol(name, recipe.evaluate)
        for name in dict.fromkeys(protocols or recipe.evaluate.protocols)
    ]
    planned = [(protocol, protocol.plan(task, source, lengths)) for protocol in chosen]
    likely = [plan for protocol, plans in planned for plan in _likely(protocol, plans)]
    bar = progress_bar(
        sum(plan.tokens for plan in likely), f"evaluating {recipe.name}", "token",
        unit_scale=True, leave=False, disable=team.rank > 0,
    )  # fmt: skip
    work = _Work(recipe, team, bar)
    results, unsaved = _Results(), _Results()
    saved_at = time.monotonic()
    with bar:
        try:
            for protocol, plan, rows in _measured(planned, likely, work):
                about = _without_rows(task, protocol, plan, os.path.relpath(checkpoint, folder))
                results.add(about, rows)
                unsaved.add(about, rows)
                if time.monotonic() - saved_at > SECONDS_AT_RISK:
                    save(unsaved.take())
                    saved_at = time.monotonic()
        finally:
            if left := unsaved.take():
                save(left)
    return results.take()


def _measured(
    planned: list[tuple[Protocol, list[MeasurementPlan]]], likely: list[MeasurementPlan], work: _Work
) -> Iterator[tuple[Protocol, MeasurementPlan, list[Row]]]:
    """The rows of each length as they come."""
    for protocol, plans in planned:
        for plan in plans:
            if not any(plan is one for one in likely):
                # What was expected to be measured in its stead could not be.
                work.bar.total += plan.tokens
            complete = False
            for length in plan.lengths:
                rows = work.measure(length, protocol.name)
                complete |= any(row.note is None for row in rows)
                yield protocol, plan, rows
            if complete and protocol.first_plan_only:
                break


class _Results:
    """Measurements, with the rows that have come so far."""

    def __init__(self) -> None:
        self._found: dict[str, Measurement] = {}

    def add(self, about: Measurement, rows: list[Row]) -> None:
        before = self._found.get(about.identity, about)
        self._found[about.identity] = before.updated(about.model_copy(update={"rows": rows}))

    def take(self) -> list[Measurement]:
        taken, self._found = [*self._found.values()], {}
        return taken


def _likely(protocol: Protocol, plans: list[MeasurementPlan]) -> list[MeasurementPlan]:
    """Those that will be measured, if memory and time suffice."""
    if not protocol.first_plan_only:
        return plans
    return [plan for plan in plans if any(length.note is None for length in plan.lengths)][:1]


def _without_rows(task: Task, protocol: Protocol, plan: MeasurementPlan, checkpoint: str) -> Measurement:
    recipe = task.recipe
    return Measurement(
        run=recipe.name,
        encoding=changed_label(recipe.as_dict()["model"]["encoding"], task.changed),
        seed=recipe.seed,
        train_length=recipe.data.sequence_length,
        checkpoint=checkpoint,
        step=task.card["steps"],
        changed=task.changed,
        protocol=protocol.name,
        parameters=plan.parameters,
        targets=plan.targets,
        axis=protocol.axis,
        higher_is_better=protocol.higher_is_better,
        explanation=protocol.explanation,
        rows=[],
    )


@dataclass(frozen=True)
class _Work:
    """What the lengths of one model share: who measures them, the bar, what a token costs."""

    recipe: Recipe
    team: Team
    bar: tqdm
    costs: CostByLength = field(default_factory=CostByLength)

    def measure(self, plan: LengthPlan, protocol: str) -> list[Row]:
        """The rows of one length; one with a note where it cannot be measured, for want of memory or time
        among others."""
        found = plan.note or self._scored(plan, protocol)
        return [Row(length=plan.length, note=found)] if isinstance(found, str) else found

    def _scored(self, plan: LengthPlan, protocol: str) -> list[Row] | str:
        team, bar, config = self.team, self.bar, self.recipe.evaluate
        length, tokens, limit = plan.length, plan.tokens, config.max_seconds
        bar.set_description(f"evaluating {self.recipe.name}, length {length:,}", refresh=False)
        predicted = self.costs.predict(length, tokens)
        if limit is not None and predicted is not None and predicted > TOO_LONG * limit:
            bar.total -= tokens
            return f"not begun for evaluate.max_seconds={limit:g} (about {predicted:,.0f} s needed)"
        report = partial(self._report, length, protocol)
        if predicted is not None and predicted >= REPORT_FROM:
            report(predicted)

        restart_peak_memory(team.device)
        scored, late = None, False
        watch, load = Stopwatch(tokens, limit, predicted, report), ForeignLoad()

        def advance(tokens: int) -> None:
            watch.read += tokens
            bar.update(tokens)

        try:
            with torch.inference_mode(), allocations_bounded(team.local_size):
                # Nobody begins, nor counts free memory, while another still works on what came before.
                team.barrier()
                watch.start()
                scored = plan.score(Execution(team, advance, watch.has_time))
        except OutOfTime:
            late = True
        except (RuntimeError, MemoryError) as error:
            # What another process has ended with may quote a lack of memory of its own.
            if isinstance(error, RunError) or not is_out_of_memory(error):
                raise
        seconds = watch.seconds
        per_token = seconds / max(watch.read, 1)
        own = scored is None and not late, peak_memory_mb(team.device), per_token, load.own_seconds()
        short, peaks, costs, loads = zip(*team.gather(own), strict=True)
        if any(short) or late:
            # What the length would still have read is no time left.
            bar.total -= tokens - watch.read
        if any(short):
            smaller = config.batch_tokens >= 2 * length
            advice = "; a smaller evaluate.batch_tokens may help" if smaller else ""
            return shortage(team.device, team.local_size) + advice
        self.costs.record(length, max(costs))
        if late:
            needed = tokens * max(costs)
            return f"stopped after evaluate.max_seconds={limit:g} (about {needed:,.0f} s needed)"
        cost = {"tokens_per_second": watch.read / seconds, "peak_memory_mb": max(peaks)}
        if team.device.type == "cpu" and team.local_size == team.size:
            cost["others_cpu"] = load.others(sum(loads))
        return [
            Row(**{key: _finite(value) for key, value in ({"length": length} | numbers | cost).items()})
            for numbers in (scored if isinstance(scored, list) else [scored])
        ]

    def _report(self, length: int, protocol: str, seconds: float) -> None:
        """Say, in the first process, how long a length takes."""
        if not self.bar.disable:
            about = f"evaluating {self.recipe.name}, {protocol}, length {length:,}: about {duration(seconds)}"
            tqdm.write(about, file=sys.stderr)
            sys.stderr.flush()


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
