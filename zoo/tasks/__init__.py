"""Tasks: LightningModules that say what a batch costs and what is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.recipe import Recipe, read_recipe, resolve

if TYPE_CHECKING:
    from zoo.models.transformer import Transformer
    from zoo.tasks.task import Task

CLASSES = {
    "language_modelling": "LanguageModelling",
    "masked_language_modelling": "MaskedLanguageModelling",
    "max_index": "MaxIndex",
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
        data = recipe.data
        vocab_size = data.vocab_size if hasattr(data, "vocab_size") else data.num_values + 1
    return task_class(recipe.task.name)(recipe.as_dict(), vocab_size).model
