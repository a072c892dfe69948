"""Whether weights are those of a model, and may be used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from zoo.errors import InputError
from zoo.memory import allocations_bounded, is_out_of_memory
from zoo.recipe import Recipe
from zoo.tasks import build_task
from zoo.tasks.task import Task

MAX_PROBLEMS = 6
"""No more weights than this are named in a message."""
ROOM = 1 << 30
"""Bytes that a model may take beside eight times its weights: tables and masks that are not stored."""


def build_for_weights(weights: Mapping[str, Tensor], recipe: Recipe, vocab_size: int) -> Task:
    """The task of a recipe, at its initial weights, once `weights` are known to fit it.

    Raises:
        InputError: they do not, or the recipe asks for a model far larger than they are.
    """
    size = sum(math.prod(value.shape) * value.element_size() for value in weights.values())
    try:
        # Of a recipe that was tampered with Linux would give out all memory that there is.
        with allocations_bounded(most=8 * size + ROOM):
            task = build_task(recipe, vocab_size)
    except (RuntimeError, MemoryError, OverflowError) as error:
        if isinstance(error, RuntimeError) and not is_out_of_memory(error) and "overflow" not in str(error):
            raise
        raise InputError(
            f"its recipe asks for a model far larger than its weights, which are {size / 2**20:.1f} MiB"
        ) from error
    validate_weights(weights, task)
    return task


def validate_weights(weights: Mapping[str, Tensor], task: Task, where: Path | None = None) -> None:
    """Raises InputError, as of the file `where`, for weights that are not a task's, or are of no use."""
    problems = [*misfits(weights, task)]
    what = "its weights do not fit its recipe"
    if not problems:
        problems, what = (
            list(not_finite(weights, task)),
            "training had failed when it was written; an earlier one may do",
        )
    if problems:
        more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
        text = f"{what}: {'; '.join([*problems[:MAX_PROBLEMS], *more])}"
        raise InputError(f"{where}: {text}" if where else text)


def misfits(weights: Mapping[str, Tensor], task: Task) -> list[str]:
    """What is missing, too many, or of another shape or kind of number."""
    own = task.state_dict()
    faults = [f"{name} is missing" for name in own if name not in weights]
    faults += [f"{name} is not in the model" for name in weights if name not in own]
    for name, value in own.items():
        given = weights.get(name, value)
        if given.shape != value.shape:
            faults.append(f"size mismatch for {name}: {list(given.shape)} and not {list(value.shape)}")
        # Precision is a matter of the run; an integer instead of a weight is not.
        elif given.is_floating_point() != value.is_floating_point() or (
            not value.is_floating_point() and given.dtype != value.dtype
        ):
            faults.append(f"{name} holds {_kind(given)} and not {_kind(value)}")
    return faults


def not_finite(weights: Mapping[str, Tensor], task: Task) -> list[str]:
    """The parameters that hold NaN or an infinity. A buffer may: a mask is made of them."""
    parameters = {name for name, _ in task.named_parameters()}
    return [
        f"{name} holds NaN or infinite numbers"
        for name, value in weights.items()
        if name in parameters and not value.isfinite().all()
    ]


def _kind(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
