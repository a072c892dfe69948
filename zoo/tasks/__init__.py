"""Tasks: models with a loss and measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import InputError, Problem
from zoo.recipe import Recipe, to_recipe
from zoo.registry import tasks

if TYPE_CHECKING:
    from zoo.encodings.stack import EncodingStack
    from zoo.models.transformer import Transformer
    from zoo.tasks.task import Task


def build_task(recipe: Recipe, vocab_size: int) -> Task:
    """The `Task` of a resolved recipe; imports torch."""
    section = recipe.as_dict()["task"]
    options = {key: value for key, value in section.items() if key != "name"}
    return tasks.load(section["name"])(recipe, vocab_size, **options)


def build(
    recipe: Recipe | Mapping[str, Any] | str | Path, sets: Sequence[str] = (), vocab_size: int | None = None
) -> Transformer:
    """The model of a recipe at its initial weights, on the CPU.

    Args:
        recipe: a recipe, a mapping, or the path of a recipe file.
        sets: `key=value` changes to it.
        vocab_size: number of token ids; by default that of the recipe's data.

    Raises:
        InputError: the recipe is wrong, or its model cannot be built.
    """
    recipe = to_recipe(recipe, sets)
    if vocab_size is None:
        from zoo.data import build_dataset

        vocab_size = build_dataset(recipe.data).vocab_size
    return build_task(recipe, vocab_size).model


def build_encoding(recipe: Recipe) -> EncodingStack:
    """Build the encoding of a recipe at its initial values, on the CPU.

    Raises:
        InputError: what only an encoding's own code can find: option values that it refuses, tables that do
            not fit into memory, a trained length beyond its end, a kernel that cannot compute it.
    """
    from zoo.encodings.stack import EncodingStack
    from zoo.models.transformer import size_of

    model, length = recipe.model, recipe.data.sequence_length
    size = size_of(model, length)
    try:
        stack = EncodingStack(recipe.as_dict()["model"]["encoding"], size, recipe.seed)
    except InputError as error:
        raise InputError(
            [Problem(p.message, p.key or "model.encoding", p.where) for p in error.problems]
        ) from error
    if stack.max_length is not None and stack.max_length < length:
        fault = f"{length} tokens, but the encoding ends at {stack.max_length}"
        raise InputError(Problem(fault, key="data.sequence_length"))
    if model.kernel not in ("auto", "reference"):
        from zoo.models.plans.choose import cannot_compute

        for view in map(stack.layer, range(model.num_layers)):
            if fault := cannot_compute(model.kernel, view):
                raise InputError(Problem(fault, key="model.kernel"))
    return stack
