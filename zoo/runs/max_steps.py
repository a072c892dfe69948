"""Whether a run may be resumed with another `trainer.max_steps`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from zoo.errors import Problem
from zoo.recipe import Recipe
from zoo.recipe.diff import MAX_STEPS
from zoo.schedules import last_other_rate, lr_factor


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
        message = f"{new} is below the {done} steps that the run has done already"
        return Problem(message, key=MAX_STEPS, where=str(folder))
    if not isinstance(old, int):
        return Problem(f"the run has {old!r}, the recipe now {new}", key=MAX_STEPS, where=str(folder))
    step = last_other_rate(config, done, old, new)
    if step is None:
        return None
    fit = ["python", "-m", "zoo", "fit", "--recipe", str(folder / "recipe.yaml")]
    then, now = (config.lr * lr_factor(config, step, steps) for steps in (old, new))
    finish = shlex.join([*fit, "--out", str(folder), "--resume"])
    anew = shlex.join([*fit, "--set", f"init_from={folder}", "--set", f"{MAX_STEPS}={max(1, new - done)}"])
    wsd = shlex.join([*fit, "--set", "optimizer.schedule=wsd", "--set", f"{MAX_STEPS}={new}"])
    lines = [
        f"the run has done {done} of {old} steps at learning rates that are not those of {new} steps (schedule "
        f"{config.schedule}: {then:.3g} at step {step + 1}, and {now:.3g} where trainer.max_steps is {new}), "
        f"so it cannot become the run of {new} steps",
        *([f"finish it as it is, with {MAX_STEPS}={old}: {finish}"] if done < old else []),
        f"train on from its weights, as a new run with a schedule of its own: {anew}",
        f"or train anew, with a schedule that lets a run be made longer until its rate falls (wsd) or always "
        f"(constant): {wsd}",
    ]
    return Problem("\n  ".join(lines), key=MAX_STEPS, where=str(folder))
