"""How far a run of the matrix has come, as its folder tells."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from zoo.errors import InputError, Problem
from zoo.evaluation.stored import Row, read_rows
from zoo.recipe import Recipe
from zoo.runs.card import read_card
from zoo.runs.folder import (
    CARD,
    CHECKPOINTS,
    LAST,
    METRICS,
    RECIPE,
    RESULTS,
    TOKENIZER,
    existing_run,
    stored_recipe,
)
from zoo.runs.lock import lock_run, unlock
from zoo.runs.max_steps import max_steps_problem

# What a run has written when it stops before its first checkpoint, and no more.
BEGINNINGS = (RECIPE, CARD, METRICS, "tensorboard", TOKENIZER, str(CHECKPOINTS))
# One pass over the longest window: its other rows stand at context lengths of its own.
OF_THE_LONGEST = ("per_position",)


class State(Enum):
    """What is to be done: train, begin again, go on, evaluate, or nothing."""

    NEW = "new"
    EMPTY = "stopped before its first checkpoint"
    UNFINISHED = "unfinished"
    TRAINED = "trained, not evaluated"
    FINISHED = "finished"


@dataclass(frozen=True)
class Standing:
    """The state of a run, and the optimizer steps that it has done."""

    state: State
    steps: int = 0


def standing(folder: Path, recipe: Recipe) -> Standing:
    """How far the run of a recipe has come in its folder.

    Raises:
        InputError: something else lies there, or a run of another recipe.
    """
    try:
        if not folder.is_symlink() and (not folder.exists() or not any(folder.iterdir())):
            return Standing(State.NEW)
    except OSError as error:
        raise InputError(
            Problem(f"not a folder that can be read: {error.strerror}", where=str(folder))
        ) from error
    if not (folder / RECIPE).is_file():
        raise InputError(
            Problem(
                "not empty, and no run lies there: move it away, or choose another --out", where=str(folder)
            )
        )
    begun = (folder / LAST).is_file()
    rows = _rows(folder) if begun else []
    steps = [row["step"] for row in rows if isinstance(row.get("step"), int)]
    steps = max([_card_steps(folder), *steps]) if begun else 0
    _same_recipe(folder, recipe, steps)
    if not begun:
        return Standing(State.EMPTY)
    wanted = recipe.trainer.max_steps
    if steps < wanted:
        return Standing(State.UNFINISHED, steps)
    measured = {(row.get("protocol"), row.get("length")) for row in rows if row.get("step") == wanted}
    lengths = recipe.evaluate.lengths
    whole = all(
        (protocol, length) in measured
        for protocol in recipe.evaluate.protocols
        for length in ([max(lengths)] if protocol in OF_THE_LONGEST else lengths)
    )
    return Standing(State.FINISHED if whole else State.TRAINED, steps)


def remove_empty(folder: Path, only_ask: bool = False) -> None:
    """Remove a run that stopped before its first checkpoint; or only ask whether it can be.

    Raises:
        InputError: it may be more than that: a process is at work there, or there are other files.
    """
    held = lock_run(folder, must=True)
    try:
        more = sorted(
            str(path.relative_to(folder))
            for path in [*folder.iterdir(), *(folder / CHECKPOINTS).glob("*")]
            if path.is_symlink()
            or path.relative_to(folder).parts[0] not in BEGINNINGS
            or path.parent != folder
        )
        if more:
            raise InputError(
                Problem(f"the run has no last.ckpt, but more than one that has just begun "
                        f"({', '.join(more)}): move it away, or choose another --out", where=str(folder))
            )  # fmt: skip
        if not only_ask:
            shutil.rmtree(folder)
    finally:
        unlock(held)


def _same_recipe(folder: Path, recipe: Recipe, done: int) -> None:
    problems = []
    try:
        existing_run(recipe, folder)
    except InputError as error:
        problems = list(error.problems)
    longer = max_steps_problem(folder, stored_recipe(folder), recipe, done)
    if longer is not None:
        problems.append(longer)
    if problems:
        told = "a run of another recipe lies there: move it away, or choose another --out"
        raise InputError([*problems, Problem(told, where=str(folder))])


def _card_steps(folder: Path) -> int:
    # The card is written when the first checkpoint is.
    return read_card(folder)["steps"] if os.path.lexists(folder / CARD) else 0


def _rows(folder: Path) -> list[Row]:
    """What was measured of the last checkpoint, as it was trained."""
    return [
        row
        for row in read_rows(folder / RESULTS)
        if Path(row["checkpoint"]) == LAST and not row.get("changed")
    ]
