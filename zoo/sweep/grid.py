"""Values of recipe keys that a sweep tries with every encoding."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.errors import InputError, Problem
from zoo.recipe import Recipe, to_yaml_line
from zoo.recipe.tree import read_value

Grid = Mapping[str, Sequence[Any]]
"""The values of each key; a run has one of each."""
Point = tuple[str, ...]
"""One of the combinations, as `key=value` texts."""


def read_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The grid of texts such as `optimizer.lr=1e-3,3e-3`. Raises InputError for one of another form."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, _, values = text.partition("=")
        grid[key.strip()] = read_value(f"[{values}]", f"--grid {text}")
        if not key.strip() or len(grid[key.strip()]) < 2:
            message = "not a key with several values, as in optimizer.lr=1e-3,3e-3"
            raise InputError(Problem(message, where=f"--grid {text}"))
    return grid


def points(grid: Grid) -> list[Point]:
    """All combinations; one that sets nothing where there is no grid."""
    keys = [[f"{key}={to_yaml_line(value)}" for value in values] for key, values in grid.items()]
    return list(itertools.product(*keys))


def validate_selectable(recipe: Recipe) -> None:
    """Raises InputError where the runs of a recipe would have no validation loss to choose by."""
    if "csv" not in recipe.logging:
        raise InputError(Problem("--grid reads the validation loss in metrics.csv: add csv", key="logging"))
    if recipe.trainer.limit_val_batches == 0:
        message = "--grid chooses by the validation loss: take another number, or null for all"
        raise InputError(Problem(message, key="trainer.limit_val_batches"))
