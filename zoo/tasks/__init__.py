"""Tasks: LightningModules that say what a batch costs and what is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import InputError, Problem
from zoo.recipe import Recipe, read_recipe, resolve

if TYPE_CHECKING:
    from zoo.models.transformer import Transformer
    from zoo.tasks.task import Task

CLASSES = {
    "language_modelling": "LanguageModelling",
    "masked_language_modelling": "MaskedLanguageModelling",
    "max_index": "MaxIndex",
    "answering": "Answering",
}


def task_class(name: str) -> type[Task]:
    """The LightningModule of a task; imports torch and Lightning."""
    return getattr(import_module(f"zoo.tasks.{name}"), CLASSES[name])


def build(
    recipe: Recipe | Mapping[str, Any] | str | Path, sets: Sequence[str] = (), vocab_size: int | None = None
) -> Transformer:
    """The model of a recipe at its initial weights, on the CPU.

    Args:
        recipe: a recipe, a mapping, or the path of a recipe file.
        sets: `key=value` changes to a mapping or file.
        vocab_size: number of token ids; by default what the recipe's data asks for.

    Raises:
        InputError: the recipe is wrong, or asks for what cannot be built.
    """
    if not isinstance(recipe, Recipe):
        recipe = resolve(recipe, sets) if isinstance(recipe, Mapping) else read_recipe(recipe, sets)
    if vocab_size is None:
        from zoo.data.sources import source_class

        vocab_size = source_class(recipe.data.name).vocab_size_of(recipe.data)
    return task_class(recipe.task.name)(recipe.as_dict(), vocab_size).model


def must_build(recipe: Recipe) -> None:
    """Raises InputError for option values that an encoding refuses, which only its own code can tell."""
    from zoo.encodings.base import Size
    from zoo.encodings.stack import EncodingStack

    model = recipe.model
    size = Size(
        model.d_model, model.num_heads, model.num_layers, recipe.data.sequence_length, model.kind == "decoder"
    )
    try:
        EncodingStack(recipe.as_dict()["model"]["encoding"], size, recipe.seed)
    except InputError as error:
        raise InputError(
            [Problem(p.message, p.key or "model.encoding", p.where) for p in error.problems]
        ) from error
