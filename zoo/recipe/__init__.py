"""Recipes: what decides a run, read from YAML and checked before anything heavy starts."""

from zoo.recipe.json_schema import json_schema
from zoo.recipe.reader import (
    dump,
    dump_used,
    read_located,
    read_recipe,
    resolve,
    to_recipe,
    validate_trainable,
)
from zoo.recipe.schema import Recipe
from zoo.recipe.tree import Tree, to_yaml_line
from zoo.recipe.validation import recipe_of_run

__all__ = [
    "Recipe",
    "Tree",
    "dump",
    "dump_used",
    "json_schema",
    "read_located",
    "read_recipe",
    "recipe_of_run",
    "resolve",
    "to_recipe",
    "to_yaml_line",
    "validate_trainable",
]
