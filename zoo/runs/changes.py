"""What differs between two recipes, and which of it a resumed run may have otherwise than it began with."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from zoo.errors import Problem
from zoo.recipe import Recipe
from zoo.recipe.catalogue import section_class
from zoo.recipe.schedule import last_other_rate, lr_factor

MAX_STEPS = "trainer.max_steps"

# A white list: what is in none of these groups, such as a key that a later Lightning brings, is refused.
ONLY_PLACES = (
    # Where the corpus and its tokens lie: that they are the same ones their fingerprints say.
    "data.root", "data.cache",
    # Batches have an order that does not depend on who prepares them.
    "data.workers",
    # Which files are imported. What the encodings' code is, is in the card, and compared.
    "plugins",
)  # fmt: skip
ONLY_OUTPUT = (
    # Done once it is trained, on its last checkpoint.
    "evaluate", "trainer.limit_test_batches", "trainer.limit_predict_batches",
    # What is written or shown about the steps, not what they do.
    "logging", "trainer.log_every_n_steps", "trainer.enable_progress_bar", "trainer.enable_model_summary",
    "trainer.enable_autolog_hparams", "trainer.profiler",
    # Raises where a gradient is not finite; every gradient is computed as without it.
    "trainer.detect_anomaly",
    # How validation keeps tensors. Every training step is seeded anew, whatever ran before it.
    "trainer.inference_mode", "trainer.num_sanity_val_steps",
    # Where a run stops for now: it is then unfinished, and goes on as if it had not stopped.
    "trainer.max_time",
)  # fmt: skip
WHEN_VALIDATED = (
    # Which of the states that a run passes through are saved or validated, and so may be best.ckpt; not
    # which states those are. How much is validated is not among them: the scores of one best.ckpt are
    # compared with each other.
    "checkpoint.every_n_steps", "trainer.val_check_interval", "trainer.check_val_every_n_epoch",
)  # fmt: skip
ROUNDING = (
    # The same mathematics on other devices, in other parts or by other kernels. Sums are rounded in another
    # order; and where there is dropout or a random position, each part of a batch has draws of its own.
    "compile", "model.kernel", "trainer.accelerator", "trainer.devices", "trainer.num_nodes",
    "trainer.strategy", "trainer.accumulate_grad_batches", "trainer.deterministic", "trainer.benchmark",
)  # fmt: skip
MAY_CHANGE_ON_RESUME = (*ONLY_PLACES, *ONLY_OUTPUT, *WHEN_VALIDATED, *ROUNDING)
"""The keys that cannot change the weights of a run's last checkpoint, but for rounding and random draws."""
RECORDED = (*WHEN_VALIDATED, *ROUNDING, MAX_STEPS)
"""Those of them that the card of a resumed run tells, with the step at which they changed."""


def diff(old: object, new: object, key: str = "") -> list[tuple[str, object, object]]:
    """Every key at which two recipes differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        rows = []
        for part in [*old, *(k for k in new if k not in old)]:
            rows += diff(old.get(part), new.get(part), f"{key}.{part}" if key else str(part))
        return rows
    return [] if old == new else [(key, old, new)]


def is_among(key: str, keys: Iterable[str]) -> bool:
    """Whether a recipe key is one of these, or below one of them."""
    return any(key == one or key.startswith(one + ".") for one in keys)


def limits_epochs(trainer: dict[str, Any]) -> bool:
    """Whether the section `trainer` of a recipe cuts epochs to a number of batches."""
    limit = trainer.get("limit_train_batches")
    return limit is not None and not (isinstance(limit, float) and limit == 1)


def changes_of(stored: dict[str, Any], recipe: Recipe) -> list[tuple[str, object, object]]:
    """Every key at which a run's stored recipe differs from one that it is resumed with, with both values.

    What has become a key since the run was made had its default.
    """
    return diff(_with_defaults(stored), recipe.as_dict())


def refused_changes(stored: dict[str, Any], recipe: Recipe) -> list[tuple[str, object, object]]:
    """Those of `changes_of` that would make another run. `max_steps` may change as `max_steps_problem` says."""
    changes = changes_of(stored, recipe)
    parts = [key for key, _, _ in changes if key == "trainer.accumulate_grad_batches"]
    # An epoch that is cut to so many batches is cut to other tokens where the batches have another size.
    cut = parts if limits_epochs(recipe.trainer.flags()) else []
    return [
        row
        for row in changes
        if row[0] in cut or not (row[0] == MAX_STEPS or is_among(row[0], MAY_CHANGE_ON_RESUME))
    ]


def recorded_changes(stored: dict[str, Any], recipe: Recipe) -> list[tuple[str, object, object]]:
    """Those of `changes_of` that a run which is resumed with them has in its card."""
    return [row for row in changes_of(stored, recipe) if is_among(row[0], RECORDED)]


def is_noted_change(value: object) -> bool:
    """Whether it is a change as the card of a resumed run has it: {"step", "key", "from", "to"}, plain."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or value.keys() != {"step", "key", "from", "to"}:
        return False
    return type(value["step"]) is int and value["step"] >= 0 and isinstance(value["key"], str)


def max_steps_problem(folder: Path, stored: dict[str, Any], recipe: Recipe, done: int) -> Problem | None:
    """Why a run cannot be resumed with the `max_steps` of a recipe; None where it can.

    It can where the learning rates of the steps done so far are those of a run that had this `max_steps` from
    its beginning: then both are the same run. Nothing else that decides a weight depends on `max_steps`.

    Args:
        folder: the run's.
        stored: the recipe that it had so far.
        done: its optimizer steps so far.
    """
    new, config = recipe.trainer.max_steps, recipe.optimizer
    old = (stored.get("trainer") or {}).get("max_steps")
    if done > new:
        told = f"{new} is below the {done} steps that the run has done already"
        return Problem(told, key=MAX_STEPS, where=str(folder))
    if not isinstance(old, int):
        return Problem(f"the run has {old!r}, the recipe now {new}", key=MAX_STEPS, where=str(folder))
    step = last_other_rate(config, done, old, new)
    if step is None:
        return None
    then, now = (config.lr * lr_factor(config, step, steps) for steps in (old, new))
    lines = [
        f"the run has done {done} of {old} steps at learning rates that are not those of {new} steps (schedule "
        f"{config.schedule}: {then:.3g} at step {step + 1}, and {now:.3g} where trainer.max_steps is {new}), "
        f"so it cannot become the run of {new} steps",
        "train on from its weights, as a new run with a schedule of its own: "
        + _fit(folder, f"init_from={folder}", f"{MAX_STEPS}={max(1, new - done)}"),
        "or train anew, with a schedule that lets a run be made longer until its rate falls (wsd) or always "
        "(constant): " + _fit(folder, "optimizer.schedule=wsd", f"{MAX_STEPS}={new}"),
    ]
    if done < old:
        lines.insert(1, f"finish it as it is, with {MAX_STEPS}={old}: {_fit(folder, resume=True)}")
    return Problem("\n  ".join(lines), key=MAX_STEPS, where=str(folder))


def _fit(folder: Path, *sets: str, resume: bool = False) -> str:
    words = ["python", "-m", "zoo", "fit", "--recipe", str(folder / "recipe.yaml")]
    words += ["--out", str(folder), "--resume"] if resume else []
    return shlex.join([*words, *(word for one in sets for word in ("--set", one))])


def _with_defaults(stored: dict[str, Any]) -> dict[str, Any]:
    """A stored recipe with the defaults of all keys that it lacks; an encoding's options stay as they are."""
    filled = dict(stored)
    for name, field in Recipe.model_fields.items():
        if name not in filled and not field.is_required():
            filled[name] = to_jsonable_python(field.get_default())
        section = filled.get(name)
        owner = section_class(name, section.get("name")) if isinstance(section, dict) else None
        if owner is not None:
            defaults = {
                key: to_jsonable_python(inner.get_default())
                for key, inner in owner.model_fields.items()
                if not inner.is_required()
            }
            filled[name] = defaults | section
    return filled
