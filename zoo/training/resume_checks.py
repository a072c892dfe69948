"""Whether Lightning can restore a run from a checkpoint: all that is wrong is found before it tries."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from packaging.version import InvalidVersion, Version
from torch import Tensor

from zoo.errors import InputError
from zoo.optimizers import example_state
from zoo.recipe.sections import OptimizerConfig
from zoo.runs.checkpoint_file import alternatives
from zoo.runs.load import validate_weights
from zoo.tasks.task import Task

VERSION = "pytorch-lightning_version"
RESTORES = "lightning.pytorch.trainer.connectors.checkpoint_connector"
"""The module of Lightning that restores a run."""
MAX_PROBLEMS = 6
POSITION = {"epoch": 0, "batches": 0, "accumulate": 1}
"""The position in the data, as the loader gives it."""
SCHEDULE_KEYS = ("last_epoch", "_step_count", "_last_lr", "base_lrs", "lr_lambdas")
EXACT = frozenset({"param_groups", "base_lrs", "lr_lambdas"})
"""Parts of a state that follow from the recipe."""
BY_DEVICE = frozenset({"fused", "foreach", "capturable"})
"""Options of an optimizer that say how it is computed, which follows the device."""


def validate_restorable(checkpoint: Path, content: dict[str, Any], task: Task, trainer: pl.Trainer) -> None:
    """Compare what Lightning will restore with what it would save of this run.

    Raises:
        InputError: something is missing, or of another kind or size; or the weights are of no use.
    """
    validate_weights(content["state_dict"], task, checkpoint)
    wrong = [*_wrong_progress(content, trainer), *_wrong_optimizer(content, task)]
    if wrong:
        more = [f"and {len(wrong) - MAX_PROBLEMS} more"] if len(wrong) > MAX_PROBLEMS else []
        there = content.get(VERSION)
        by = "" if there == pl.__version__ else f" (written by Lightning {there}, here is {pl.__version__})"
        why = f"{'; '.join([*wrong[:MAX_PROBLEMS], *more])}{by}"
        raise InputError(f"{checkpoint}: cannot be continued: {why}. {alternatives(checkpoint)}")


@contextmanager
def restoring(checkpoint: Path | None) -> Iterator[None]:
    """Raises as InputError whatever Lightning fails with while it restores a checkpoint, and nothing else."""
    try:
        yield
    except Exception as error:
        modules = [frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)]
        if checkpoint is None or isinstance(error, InputError) or RESTORES not in modules:
            raise
        text = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"
        raise InputError(f"{checkpoint}: cannot be continued: {text}. {alternatives(checkpoint)}") from error


def _wrong_progress(content: dict[str, Any], trainer: pl.Trainer) -> Iterator[str]:
    """What is wrong with the version, the loops and the position in the data."""
    try:
        Version(content[VERSION])
    except (KeyError, TypeError, InvalidVersion):
        yield f"no {VERSION}"
    callbacks = content.get("callbacks")
    if not isinstance(callbacks, dict) or not all(isinstance(one, dict) for one in callbacks.values()):
        yield "callbacks: not a state for each"
    loop = trainer.fit_loop.state_dict() | {"state_dict": {"combined_loader": [POSITION]}}
    unlike = list(_unlike({"epoch": 0, "loops": {"fit_loop": loop}}, content))
    yield from unlike
    if unlike:
        return
    state, done = content["loops"]["fit_loop"], content["global_step"]
    progress = state["epoch_loop.automatic_optimization.optim_progress"]
    if progress["optimizer"]["step"]["total"]["completed"] != done:
        yield f"loops.fit_loop counts other steps than the {done} of global_step"
    position = state["state_dict"]["combined_loader"][0]
    if not position["accumulate"] or position["batches"] % position["accumulate"]:
        yield "loops.fit_loop.state_dict: the position in the data is within an accumulated batch"


def _wrong_optimizer(content: dict[str, Any], task: Task) -> Iterator[str]:
    """What is wrong with the states of the optimizer and of its schedule, whichever those are."""
    fresh = task.configure_optimizers()
    optimizer, schedule = fresh["optimizer"], fresh["lr_scheduler"]["scheduler"]
    counters = {key: value for key, value in schedule.state_dict().items() if key in SCHEDULE_KEYS}
    template = {
        "optimizer_states": [{"param_groups": optimizer.state_dict()["param_groups"], "state": {}}],
        "lr_schedulers": [counters],
    }
    unlike = list(_unlike(template, content))
    yield from unlike
    if unlike:
        return
    state, where = content["optimizer_states"][0]["state"], "optimizer_states.0.state"
    kept = _state_template(optimizer, task.recipe.optimizer)
    # A parameter without a gradient has no state.
    if not state.keys() <= kept.keys():
        yield f"{where}: not of this model's parameters"
    for number in state.keys() & kept.keys():
        yield from _unlike(kept[number], state[number], f"{where}.{number}")


def _state_template(optimizer: torch.optim.Optimizer, config: OptimizerConfig) -> dict[int, dict[str, Any]]:
    """What the optimizer keeps of each parameter, by its number: found by a step on small parameters.

    Tensors of shapes of their own are left out.
    """
    parameters = [(p, group["matrices"]) for group in optimizer.param_groups for p in group["params"]]
    found = {}
    for number, (parameter, is_weight) in enumerate(parameters):
        shape, example = example_state(config, parameter.dim(), is_weight)
        found[number] = {
            key: torch.empty_like(parameter, device="meta", dtype=value.dtype)
            if isinstance(value, Tensor) and value.shape == shape
            else value
            for key, value in example.items()
            if not isinstance(value, Tensor) or value.shape in (shape, ())
        }
    return found


def _unlike(template: Any, given: Any, where: str = "", exact: bool = False) -> Iterator[str]:
    """Where a state lacks what a template has, or has something of another kind. Numbers are 0 or more.

    Below keys in `EXACT` values must be those of the template.
    """
    if isinstance(template, dict):
        if not isinstance(given, dict):
            yield f"{where} is missing"
            return
        for key, value in template.items():
            here = f"{where}.{key}" if where else key
            if key in BY_DEVICE:
                if not isinstance(given.get(key), bool | None):
                    yield f"{here} is not true, false or null"
            else:
                yield from _unlike(value, given.get(key), here, key in EXACT or (exact and key != "lr"))
    elif isinstance(template, list):
        if not isinstance(given, list) or len(given) != len(template):
            yield f"{where} is not a list of {len(template)}"
            return
        for index, (one, other) in enumerate(zip(template, given, strict=True)):
            yield from _unlike(one, other, f"{where}.{index}", exact)
    elif exact:
        if type(given) is not type(template) or given != template:
            yield f"{where} is not the recipe's"
    elif isinstance(template, Tensor):
        yield from _unlike_tensor(template, given, where)
    elif type(given) is not type(template) or not _is_number(given):
        yield f"{where} is not a valid {type(template).__name__}"


def _unlike_tensor(template: Tensor, given: Any, where: str) -> Iterator[str]:
    if not isinstance(given, Tensor) or given.shape != template.shape:
        yield f"{where} is not a tensor of shape {list(template.shape)}"
    elif given.is_floating_point() != template.is_floating_point() or not given.isfinite().all():
        yield f"{where} holds NaN, infinite or other numbers"
    elif not given.dim() and given < 0:
        yield f"{where} is negative"


def _is_number(value: Any) -> bool:
    """Whether a number is finite, 0 or more, and no more than counts to; anything else is not looked at."""
    return not isinstance(value, int | float) or (math.isfinite(value) and 0 <= value < 2**48)
