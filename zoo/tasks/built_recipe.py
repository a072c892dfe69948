"""A recipe with its encoding, built once for all that needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.recipe import Recipe

if TYPE_CHECKING:
    from zoo.encodings.stack import EncodingStack


@dataclass(frozen=True)
class BuiltRecipe:
    """A recipe whose encoding is built already; a task takes it instead of a recipe."""

    recipe: Recipe
    encoding: EncodingStack
