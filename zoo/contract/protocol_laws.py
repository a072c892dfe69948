"""The laws of protocols, tried on models with known probabilities: `zoo check` of a protocol."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from zoo import registry
from zoo.contract.dataset_laws import recipe_with
from zoo.data import open_data
from zoo.data.source import DataSource
from zoo.evaluation.measure import measure
from zoo.tasks import build_task
from zoo.tasks.task import Task

LENGTHS = [16, 32]
TEXT = {"name": "sample", "documents": 12, "words": 200, "vocab_size": 300}
EXAMPLES = {"name": "reverse"}


def protocol_laws(name: str, options: dict[str, Any], cache: Path) -> Iterator[tuple[str, str | None]]:
    """Each law with what breaks it; None where it holds.

    Args:
        cache: a folder for tokens.
    """
    data = {**TEXT, "cache": str(cache)} if registry.protocols.describe(name).needs == "text" else EXAMPLES
    evaluate = {"protocols": [name], "lengths": LENGTHS, "max_tokens": 1024, "samples": 64, **options}
    recipe = recipe_with({**data, "sequence_length": 16, "batch_size": 4}, evaluate=evaluate)
    source = open_data(recipe)
    task = build_task(recipe, source.vocab_size)
    task.card = {"steps": 0}
    # Without weights every token has the same probability.
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.zero_()
    laws: dict[str, Callable[[], str | None]] = {
        "a model with known probabilities gets its exact loss": lambda: _exact(task, source),
        "the same model gets the same numbers again": lambda: _again(task, source),
        "targets do not depend on the lengths asked for": lambda: _same_targets(task, source),
    }
    for law, fault in laws.items():
        try:
            yield law, fault()
        except Exception as error:  # a plugin's code may do anything
            yield law, f"{type(error).__name__}: {error}"


def _rows(task: Task, source: DataSource, lengths: list[int] = LENGTHS) -> list[dict[str, Any]]:
    found = measure(task, source, Path(), Path("last.ckpt"), lengths=lengths)
    timed = ("tokens_per_second", "peak_memory_mb", "others_cpu")
    return [
        {key: value for key, value in row.model_dump().items() if key not in timed}
        for one in found
        for row in one.rows
    ]


def _exact(task: Task, source: DataSource) -> str | None:
    rows = [row for row in _rows(task, source) if row.get("note") is None]
    if not rows:
        return "no length can be measured"
    for row in rows:
        length = row["length"]
        if row.get("loss_nats") is not None:
            expected, key = math.log(source.vocab_size), "loss_nats"
        elif row.get("accuracy") is not None:
            examples = source.examples("test", length, task.recipe.evaluate.samples)
            judged = task.judge(examples.batch(range(len(examples))))
            expected, key = float(judged["accuracy"].double().mean()), "accuracy"
        else:
            return f"length {length}: neither loss_nats nor accuracy"
        if not math.isclose(row[key], expected, rel_tol=1e-6, abs_tol=1e-9):
            return f"length {length}: {key} is {row[key]:.6g}, not {expected:.6g}"
    return None


def _again(task: Task, source: DataSource) -> str | None:
    return None if _rows(task, source) == _rows(task, source) else "the numbers differ"


def _same_targets(task: Task, source: DataSource) -> str | None:
    found_for = [
        measure(task, source, Path(), Path("last.ckpt"), lengths=some) for some in (LENGTHS[:1], LENGTHS)
    ]
    first, both = ({one.targets for one in found} for found in found_for)
    return None if first <= both else f"{first} for {LENGTHS[:1]} and {both} for {LENGTHS}"
