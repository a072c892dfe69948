"""Recipes: what decides a run, read from YAML and checked before anything heavy starts."""

from zoo.recipe.editor import json_schema
from zoo.recipe.reader import locate, must_train, read_recipe, resolve
from zoo.recipe.schema import Recipe
from zoo.recipe.writer import dump, spell

__all__ = ["Recipe", "dump", "json_schema", "locate", "must_train", "read_recipe", "resolve", "spell"]
