"""Whether a checkpoint is that of the run which it is to continue: all that differs is told before Lightning
restores it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from packaging.version import InvalidVersion, Version
from torch import Tensor

from zoo.data.source import DataSource
from zoo.errors import InputError, Problem
from zoo.optimizers import example_state
from zoo.recipe import Recipe
from zoo.recipe.diff import refused_on_resume
from zoo.recipe.located_tree import shorten
from zoo.runs.card import changed_data, read_card
from zoo.runs.checkpoint_file import alternatives
from zoo.runs.folder import CARD, RECIPE
from zoo.runs.weights import validate_weights
from zoo.tasks.task import Task

VERSION = "pytorch-lightning_version"
RESTORES = "lightning.pytorch.trainer.connectors.checkpoint_connector"
"""The module of Lightning that restores a run."""
SAME_ON_CARD = ("name", "encoding", "task", "data", "train_length", "seed", "init_from")
"""What a run's card and its checkpoint agree in, however old one of them is."""
MOST_TOLD = 6


def validate_same_run(folder: Path, checkpoint: Path, content: dict[str, Any], recipe: Recipe) -> None:
    """Compare a checkpoint with the recipe of the run that it lies in, and with its card.

    The card may lag behind: it is written after the checkpoint. Without one a new one is written.

    Raises:
        InputError: they are of different runs, or the card cannot be read.
    """
    stored = content["hyper_parameters"]["recipe"]
    where = RECIPE if (folder / RECIPE).is_file() else "the recipe given"
    problems = [
        Problem(
            f"{shorten(repr(old))} in this checkpoint, and {shorten(repr(new))} in {where}",
            key=key,
            where=str(checkpoint),
        )
        for key, old, new in refused_on_resume(stored, recipe)
    ]
    if problems:
        what = "it is of another run. Put this run's own checkpoint back, or continue the other run"
        raise InputError([*problems, Problem(what, where=str(checkpoint))])
    file, own = folder / CARD, content.get("zoo_card")
    if own is None:
        raise InputError(
            f"{checkpoint}: cannot be continued: it holds no zoo_card, which says what it was trained on. "
            f"{alternatives(checkpoint)}"
        )
    if not file.exists():
        return
    remedy = f"remove {CARD}: it is written anew from the checkpoint"
    try:
        card = read_card(folder, advice="")
    except InputError as error:
        raise InputError(
            [Problem(f"{p.message}; {remedy}", p.key, p.where) for p in error.problems]
        ) from error
    told = [key for key in SAME_ON_CARD if card.get(key) != own.get(key)]
    told += [f"fingerprint.{key}" for key in ("corpus", "tokenizer") if _print(card, key) != _print(own, key)]
    if told:
        raise InputError(
            Problem(
                f"not the card of this run: {', '.join(told)} differ from {checkpoint.name}; {remedy}",
                where=str(file),
            )
        )


def validate_same_data(checkpoint: Path, content: dict[str, Any], source: DataSource) -> None:
    """Raises InputError where a run would go on with other data than it has learned from so far."""
    differing = changed_data(content.get("zoo_card"), source)
    if differing:
        raise InputError(
            Problem(
                f"{'; '.join(differing)} since {checkpoint} was saved: the run cannot be continued on "
                f"other data. Put the old text back (or name its place with --set data.root=...), or start a "
                f"new run",
                key="data.root" if source.kind == "text" else "data",
            )
        )


def validate_restorable(checkpoint: Path, content: dict[str, Any], task: Task, trainer: pl.Trainer) -> None:
    """Compare what Lightning will restore with what it would save of this run.

    Raises:
        InputError: something is missing, or of another kind or size; or the weights are of no use.
    """
    validate_weights(content["state_dict"], task, checkpoint)
    wrong = [*_wrong_progress(content, trainer), *_wrong_optimizer(content, task)]
    if wrong:
        more = [f"and {len(wrong) - MOST_TOLD} more"] if len(wrong) > MOST_TOLD else []
        raise _cannot_continue(checkpoint, content.get(VERSION), "; ".join([*wrong[:MOST_TOLD], *more]))


@contextmanager
def restoring(checkpoint: Path | None, written_by: str | None) -> Iterator[None]:
    """Raises as InputError whatever Lightning fails with while it restores a checkpoint, and nothing else.

    `written_by` is the version of Lightning in the checkpoint.
    """
    try:
        yield
    except Exception as error:
        frame = error.__traceback__ if checkpoint and not isinstance(error, InputError) else None
        while frame is not None and frame.tb_frame.f_globals.get("__name__") != RESTORES:
            frame = frame.tb_next
        if frame is None:
            raise
        text = (str(error).strip().splitlines() or [""])[0][:300]
        raise _cannot_continue(checkpoint, written_by, f"{type(error).__name__}: {text}") from error


def _cannot_continue(checkpoint: Path, written_by: str | None, why: str) -> InputError:
    same = written_by == pl.__version__
    by = "" if same else f" (written by Lightning {written_by}, here is {pl.__version__})"
    return InputError(f"{checkpoint}: cannot be continued: {why}{by}. {alternatives(checkpoint)}")


def _print(card: dict[str, Any], key: str) -> Any:
    fingerprint = card.get("fingerprint")
    return fingerprint.get(key) if isinstance(fingerprint, dict) else None


def _wrong_progress(content: dict[str, Any], trainer: pl.Trainer) -> Iterator[str]:
    """What is wrong with the version, the loops and the place in the data."""
    try:
        Version(content[VERSION])
    except (KeyError, TypeError, InvalidVersion):
        yield f"no {VERSION}"
    if not _is_count(content.get("epoch")):
        yield "epoch is no number"
    loops = content.get("loops")
    given = loops.get("fit_loop") if isinstance(loops, dict) else None
    template = {key: value for key, value in trainer.fit_loop.state_dict().items() if key != "state_dict"}
    unlike = list(_unlike(template, given, "loops.fit_loop"))
    yield from unlike
    if unlike:
        return
    done, progress = content["global_step"], given["epoch_loop.automatic_optimization.optim_progress"]
    if progress["optimizer"]["step"]["total"]["completed"] != done:
        yield f"loops.fit_loop counts other steps than the {done} of global_step"
    yield from _wrong_place(given.get("state_dict"))
    callbacks = content.get("callbacks")
    if not isinstance(callbacks, dict) or not all(isinstance(one, dict) for one in callbacks.values()):
        yield "callbacks is not made of states"


def _wrong_place(state: Any) -> Iterator[str]:
    """What is wrong with the state of the loader, of which there is one."""
    places = state.get("combined_loader") if isinstance(state, dict) else None
    if not isinstance(places, list) or len(places) != 1:
        yield "loops.fit_loop.state_dict does not tell the place in the data"
    elif not isinstance(places[0], dict) or not all(
        _is_count(places[0].get(key)) for key in ("epoch", "batches", "accumulate")
    ):
        yield "the place in the data is no epoch and batch"
    elif not places[0]["accumulate"]:
        yield "the place in the data is of batches of no parts"
    elif places[0]["batches"] % places[0]["accumulate"]:
        yield "the place in the data is within an accumulated batch"


def _unlike(template: Any, given: Any, place: str) -> Iterator[str]:
    """Where a state lacks what a template has, or has something of another kind. Numbers count, from 0."""
    if isinstance(template, dict):
        if not isinstance(given, dict):
            yield f"{place} is missing"
            return
        for key, value in template.items():
            yield from _unlike(value, given.get(key), f"{place}.{key}")
    elif type(given) is not type(template) or (type(given) is int and not _is_count(given)):
        yield f"{place} is no count"


def _wrong_optimizer(content: dict[str, Any], task: Task) -> Iterator[str]:
    """What is wrong with the states of the optimizer and of its schedule."""
    fresh = task.configure_optimizers()
    optimizer, schedule = fresh["optimizer"], fresh["lr_scheduler"]["scheduler"]
    states, schedules = content.get("optimizer_states"), content.get("lr_schedulers")
    if not isinstance(states, list) or len(states) != 1 or not isinstance(states[0], dict):
        yield "optimizer_states is not the state of one optimizer"
    else:
        yield from _wrong_groups(states[0].get("param_groups"), optimizer)
        yield from _wrong_state(states[0].get("state"), optimizer, task)
    if not isinstance(schedules, list) or len(schedules) != 1 or not isinstance(schedules[0], dict):
        yield "lr_schedulers is not the state of one schedule"
        return
    state = schedules[0]
    for key, value in schedule.state_dict().items():
        given = state.get(key)
        if key in ("last_epoch", "_step_count"):
            if not _is_count(given):
                yield f"lr_schedulers.{key} is no count"
        elif key == "_last_lr":
            if not isinstance(given, list) or len(given) != len(value) or not all(map(_is_rate, given)):
                yield f"lr_schedulers.{key} is not made of rates"
        elif key in state and given != value and key in ("base_lrs", "lr_lambdas"):
            yield f"lr_schedulers.{key} is not the recipe's"


def _wrong_groups(given: Any, optimizer: torch.optim.Optimizer) -> Iterator[str]:
    own = optimizer.state_dict()["param_groups"]
    if (
        not isinstance(given, list)
        or len(given) != len(own)
        or not all(isinstance(one, dict) for one in given)
    ):
        yield "optimizer_states.param_groups are not those of this model"
        return
    for mine, theirs in zip(own, given, strict=True):
        for key, value in mine.items():
            if key == "lr":
                same = _is_rate(theirs.get(key))
            elif key in ("fused", "foreach", "capturable"):
                # How it is computed follows the device.
                same = isinstance(theirs.get(key), bool | None)
            else:
                same = key in theirs and type(theirs[key]) is type(value) and theirs[key] == value
            if not same:
                yield f"optimizer_states.param_groups.{key} is not the recipe's"


def _wrong_state(given: Any, optimizer: torch.optim.Optimizer, task: Task) -> Iterator[str]:
    """What is wrong with an optimizer's state, by the parameter's number. One without a gradient has none.

    Which keys it has, and of what shapes, a step of the same optimizer on small parameters shows.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not isinstance(given, dict) or not given.keys() <= set(range(len(parameters))):
        yield "optimizer_states.state is not of this model's parameters"
        return
    small = {
        dim: example_state(task.recipe.optimizer, dim)
        for dim in {parameter.dim() for parameter in parameters}
    }
    for number, state in given.items():
        parameter = parameters[number]
        shape, template = small[parameter.dim()]
        for key, like in template.items():
            name = f"optimizer_states.state.{number}.{key}"
            value = state.get(key) if isinstance(state, dict) else None
            if not isinstance(like, Tensor) or like.numel() == 1:
                if isinstance(like, Tensor | int | float) and not _is_number(value):
                    yield f"{name} is no number"
            elif not isinstance(value, Tensor) or (like.shape == shape and value.shape != parameter.shape):
                yield f"{name} is not of the size of its parameter"
            elif value.is_floating_point() != like.is_floating_point() or not value.isfinite().all():
                yield f"{name} holds NaN, infinite or other numbers"


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return (
            value.numel() == 1 and value.is_floating_point() and bool(value.isfinite().all() and value >= 0)
        )
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _is_rate(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value) and value >= 0


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**48
