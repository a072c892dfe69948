"""One model, measured by its protocols at all lengths: rows as they come, within memory and time."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from zoo.console import progress_bar
from zoo.data.source import DataSource
from zoo.errors import RunError
from zoo.evaluation.measurement import TOO_FEW, Measurement, Row
from zoo.evaluation.protocols.protocol import (
    Execution,
    LengthPlan,
    MeasurementPlan,
    OutOfTime,
    Protocol,
    build_protocol,
)
from zoo.launch.team import Team, alone, device_for
from zoo.memory import (
    allocations_bounded,
    freed_memory_kept,
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
        save: called with all that was measured: at the end, whatever ends it, and in between, so that no more
            than `SECONDS_AT_RISK` of work are lost to a process that is killed.
    """
    recipe = task.recipe
    lengths = sorted(set(lengths or recipe.evaluate.lengths))
    team = team or alone(device_for(recipe.trainer.accelerator))
    task.to(team.device).eval()
    chosen = [build_protocol(name, recipe.evaluate) for name in protocols or recipe.evaluate.protocols]
    planned = {one.name: (one, one.plan(task, source, lengths)) for one in chosen}
    bar = progress_bar(
        sum(plan.tokens for protocol, plans in planned.values() for plan in _likely(protocol, plans)),
        f"evaluating {recipe.name}", "token", unit_scale=True, leave=False, disable=team.rank > 0,
    )  # fmt: skip
    work = _Work(recipe, team, bar)
    measured: dict[str, Measurement] = {}
    saved_at = time.monotonic()
    with bar:
        try:
            for protocol, plan, rows in _measured(planned.values(), work):
                one = _measurement(task, protocol, plan, os.path.relpath(checkpoint, folder), rows)
                before = measured.get(one.identity)
                measured[one.identity] = before.updated(one) if before else one
                if time.monotonic() - saved_at > SECONDS_AT_RISK:
                    save([*measured.values()])
                    saved_at = time.monotonic()
        finally:
            if measured:
                save([*measured.values()])
    return [*measured.values()]


Planned = tuple[Protocol, list[MeasurementPlan]]


def _measured(
    planned: Iterable[Planned], work: _Work
) -> Iterator[tuple[Protocol, MeasurementPlan, list[Row]]]:
    """The rows of each length as they come."""
    for protocol, plans in planned:
        likely = _likely(protocol, plans)
        for plan in plans:
            if plan not in likely:
                # The plan that was expected could not be measured.
                work.bar.total += plan.tokens
            complete = False
            for length in plan.lengths:
                rows = work.rows(length)
                complete |= any(row.note is None for row in rows)
                yield protocol, plan, rows
            if complete and protocol.first_plan_only:
                break


def _likely(protocol: Protocol, plans: list[MeasurementPlan]) -> list[MeasurementPlan]:
    """Those that will be measured, if memory and time suffice."""
    if not protocol.first_plan_only:
        return plans
    return [plan for plan in plans if any(length.note is None for length in plan.lengths)][:1]


def _measurement(
    task: Task, protocol: Protocol, plan: MeasurementPlan, checkpoint: str, rows: list[Row]
) -> Measurement:
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
        rows=rows,
    )


@dataclass(frozen=True)
class _Work:
    """What the lengths of one model share: the processes that measure them, and the bar."""

    recipe: Recipe
    team: Team
    bar: tqdm

    def rows(self, plan: LengthPlan) -> list[Row]:
        """The rows of one length; one with a note where it cannot be measured, for want of memory or time
        among others."""
        found = plan.note or self._scored(plan)
        return [Row(length=plan.length, note=found)] if isinstance(found, str) else found

    def _scored(self, plan: LengthPlan) -> list[Row] | str:
        team, bar, config = self.team, self.bar, self.recipe.evaluate
        length, tokens, limit = plan.length, plan.tokens, config.max_seconds
        bar.set_description(f"evaluating {self.recipe.name}, length {length:,}", refresh=False)
        began, read = time.perf_counter(), 0

        def advance(count: int) -> None:
            nonlocal read
            read += count
            bar.update(count)

        def has_time() -> bool:
            return limit is None or not read or time.perf_counter() - began < limit

        restart_peak_memory(team.device)
        scored, late = None, False
        try:
            with torch.inference_mode(), freed_memory_kept(), allocations_bounded(team.local_size):
                # Every process waits until none works on the length before.
                team.barrier()
                began = time.perf_counter()
                scored = plan.score(Execution(team, advance, has_time))
        except OutOfTime:
            late = True
        except (RuntimeError, MemoryError) as error:
            # The error of another process may quote a lack of memory of its own.
            if isinstance(error, RunError) or not is_out_of_memory(error):
                raise
        seconds = time.perf_counter() - began
        own = scored is None, peak_memory_mb(team.device), seconds / max(read, 1)
        failed, peaks, costs = zip(*team.gather(own), strict=True)
        if any(failed):
            # The bar ends without the tokens that were not read.
            bar.total -= tokens - read
        if any(failed) and not late:
            smaller = config.batch_tokens >= 2 * length
            advice = "; a smaller evaluate.batch_tokens may help" if smaller else ""
            return shortage(team.device, team.local_size) + advice
        if late:
            needed = tokens * max(costs)
            return f"stopped after evaluate.max_seconds={limit:g} (about {needed:,.0f} s needed)"
        cost = {"length": length, "tokens_per_second": read / seconds, "peak_memory_mb": max(peaks)}
        return [
            Row(**{key: _finite(value) for key, value in (cost | numbers).items()})
            for numbers in (scored if isinstance(scored, list) else [scored])
        ]


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def unmeasurable_lengths(task: Task, source: DataSource) -> list[str]:
    """A line for each reason why lengths of the recipe cannot be measured, known before the model is trained:
    beyond the encoding's end, or more than the data has. The evaluation will note the same of them."""
    training, config = task.training, task.recipe.evaluate
    task.eval()  # the end of some encodings is another while they are trained
    try:
        reasons: dict[str, set[int]] = defaultdict(set)
        for name in config.protocols:
            protocol = build_protocol(name, config)
            plans = protocol.plan(task, source, sorted(set(config.lengths)))
            lengths = [length for plan in plans for length in plan.lengths]
            if not protocol.first_plan_only or all(length.note is not None for length in lengths):
                for length in lengths:
                    if length.note is not None:
                        reasons[length.note].add(length.length)
    finally:
        task.train(training)
    return [
        f"will not be measured at the end: length {', '.join(map(str, sorted(lengths)))} ({reason})"
        for reason, lengths in reasons.items()
    ]


def validation_seen_in_training(task: Task, source: DataSource) -> list[str]:
    """A line if validation scores what training may have seen, because there is too little to hold any out.
    The rows of an evaluation say it of themselves."""
    recipe = task.recipe
    if source.kind == "text" or recipe.trainer.limit_val_batches == 0:
        return []
    share = source.dataset("valid").seen_in_training(recipe.data.sequence_length)
    return [f"validation: training may have seen {share:.0%} of it: {TOO_FEW}"] if share else []
