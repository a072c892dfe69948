"""Measurements of one model by its protocols at all lengths."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
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
from zoo.evaluation.protocols.text import FEW_DOCUMENTS, Text
from zoo.launch.devices import machine
from zoo.launch.team import Team, alone, device_for
from zoo.memory import freed_memory_kept, is_out_of_memory, peak_memory_mb, restart_peak_memory
from zoo.runs.load import LoadedRun
from zoo.tasks.task import Task

OUT_OF_MEMORY = "out of memory"
SMALLER_BATCHES = f"{OUT_OF_MEMORY}; a smaller evaluate.batch_tokens may help"


def measure(
    run: LoadedRun,
    source: DataSource,
    lengths: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    team: Team | None = None,
) -> Iterator[Measurement]:
    """Measure one model: a measurement of each protocol and length, in every process of the team.

    A length that cannot be measured has a row with a `note` that gives the reason.

    Args:
        lengths, protocols: by default those of the recipe.
    """
    task, recipe = run.task, run.task.recipe
    lengths = sorted(set(lengths or recipe.evaluate.lengths))
    team = team or alone(device_for(recipe.trainer.accelerator))
    task.model.to(team.device).eval()
    chosen = [build_protocol(name, recipe.evaluate) for name in protocols or recipe.evaluate.protocols]
    planned = [(protocol, protocol.plan(task, source, lengths)) for protocol in chosen]
    if source.label is not None:
        for plan in (plan for _, plans in planned for plan in plans):
            plan.parameters["data"] = source.label
    bar = progress_bar(
        sum(_expected_tokens(protocol, plans) for protocol, plans in planned),
        f"evaluating {recipe.name}", "token", unit_scale=True, leave=False, disable=team.rank > 0,
    )  # fmt: skip
    checkpoint = os.path.relpath(run.checkpoint, run.folder)
    with bar:
        for protocol, plan, rows in _rows(planned, task, team, bar):
            yield Measurement(
                run=recipe.name,
                encoding=run.label,
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


Planned = tuple[Protocol, list[MeasurementPlan]]


def _expected_tokens(protocol: Protocol, plans: list[MeasurementPlan]) -> int:
    tokens = [plan.tokens for plan in plans if plan.tokens]
    return sum(tokens[:1] if protocol.first_plan_only else tokens)


def _rows(
    planned: list[Planned], task: Task, team: Team, bar: tqdm
) -> Iterator[tuple[Protocol, MeasurementPlan, list[Row]]]:
    """The rows of each length, one length after the other."""
    for protocol, plans in planned:
        for plan in plans:
            complete = False
            for length in plan.lengths:
                rows = _score(length, task, team, bar)
                complete |= any(row.note is None for row in rows)
                yield protocol, plan, rows
            if complete and protocol.first_plan_only:
                break


def _score(plan: LengthPlan, task: Task, team: Team, bar: tqdm) -> list[Row]:
    """The rows of one length, or one row with a note where memory or time do not suffice."""
    if plan.note is not None or plan.score is None:
        return [Row(length=plan.length, note=plan.note)]
    config, limit, note = task.recipe.evaluate, task.recipe.evaluate.max_seconds, None
    bar.set_description(f"evaluating {task.recipe.name}, length {plan.length:,}", refresh=False)
    restart_peak_memory(team.device)
    team.barrier()
    began = time.perf_counter()

    def has_time() -> bool:
        return limit is None or time.perf_counter() - began < limit

    try:
        with torch.inference_mode(), freed_memory_kept():
            scored = plan.score(Execution(team, bar.update, has_time, task))
    except OutOfTime:
        note = f"stopped after evaluate.max_seconds={limit:g}"
    except (RuntimeError, MemoryError) as error:
        # A RunError may quote the out-of-memory error of another process.
        if isinstance(error, RunError) or not is_out_of_memory(error):
            raise
        note = SMALLER_BATCHES if config.batch_tokens >= 2 * plan.length else OUT_OF_MEMORY
    seconds = time.perf_counter() - began
    notes, peaks = zip(*team.gather((note, peak_memory_mb(team.device))), strict=True)
    if any(notes):
        return [Row(length=plan.length, note=next(filter(None, notes)))]
    cost = {
        "length": plan.length,
        "tokens_per_second": plan.tokens / max(seconds, 1e-9),
        "peak_memory_mb": max(peaks),
        "machine": machine(team.device.type, team.size),
    }
    return [
        Row(**{key: _finite(value) for key, value in (cost | numbers).items()})
        for numbers in (scored if isinstance(scored, list) else [scored])
    ]


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def limits_of_evaluation(task: Task, source: DataSource) -> list[str]:
    """The lengths and intervals that an evaluation will lack, known before training: a line each."""
    return [
        *unmeasurable_lengths(task, source),
        *validation_seen_in_training(task, source),
        *few_documents(task, source),
    ]


def unmeasurable_lengths(task: Task, source: DataSource) -> list[str]:
    """A line for each reason why lengths of the recipe cannot be measured, known before training: the end of
    the encoding, or of the data."""
    training, config = task.model.training, task.recipe.evaluate
    if not config.lengths:
        return []
    task.model.eval()  # some encodings have another end while they are trained
    reasons: dict[str, set[int]] = defaultdict(set)
    try:
        for name in config.protocols:
            protocol = build_protocol(name, config)
            plans = protocol.plan(task, source, sorted(set(config.lengths)))
            lengths = [length for plan in plans for length in plan.lengths]
            if protocol.first_plan_only and any(length.note is None for length in lengths):
                continue
            for length in lengths:
                if length.note is not None:
                    reasons[length.note].add(length.length)
    finally:
        task.model.train(training)
    return [
        f"will not be measured at the end: length {', '.join(map(str, sorted(lengths)))} ({reason})"
        for reason, lengths in reasons.items()
    ]


def validation_seen_in_training(task: Task, source: DataSource) -> list[str]:
    """A line if training may have seen validation examples, because there are too few to hold any out."""
    recipe = task.recipe
    if source.kind == "text" or recipe.trainer.limit_val_batches == 0:
        return []
    share = source.dataset("valid").seen_in_training(recipe.data.sequence_length)
    return [f"validation: training may have seen {share:.0%} of it: {TOO_FEW}"] if share else []


def few_documents(task: Task, source: DataSource) -> list[str]:
    """A line where the scored text has too few documents for intervals over them, with the remedy."""
    config = task.recipe.evaluate
    if source.kind != "text" or not config.lengths:
        return []
    text = Text(task, source, config.lengths)
    documents = len(set(text.documents(np.arange(text.size)).tolist()))
    if documents >= FEW_DOCUMENTS:
        return []
    begin = f"{documents} document{'s' * (documents != 1)} will be scored: "
    remedy = "for intervals over documents, give each document a file or a record of its own"
    if len(source.stream(text.split).document_starts) > documents:
        remedy = "evaluate.max_tokens_per_document scores the beginnings of more of them"
    if text.blocks >= 2:
        return [f"{begin}intervals are over {text.blocks} blocks of text; {remedy}"]
    return [f"{begin}too little text for intervals at length {max(config.lengths)}; {remedy}"]
