"""From a file, or a mapping, and `--set` to a recipe: parse, lay over the base, set, validate."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem, collect, nearest, shorten
from zoo.recipe.encoding import keep_trained_options
from zoo.recipe.rules import not_for_training
from zoo.recipe.schema import LONGEST_NAME, Recipe
from zoo.recipe.tree import (
    NAMED,
    KeyPath,
    Tree,
    describe_value,
    dotted,
    read_file,
    read_value,
    to_yaml,
    to_yaml_line,
)
from zoo.recipe.validation import validate

LOCAL, SHIPPED = Path("recipes"), Path(__file__).parent / "shipped"
"""Folders in which recipes are found by name: the user's, in the working directory, and the zoo's."""

Sets = Sequence[str] | Mapping[str, Any]
"""Changes to a recipe: `key=value` texts as of `--set`, or a mapping of (dotted) keys to values."""
Setting = tuple[str, KeyPath, Any]
"""Location, key path and value of a `--set`."""


def read_recipe(path: str | Path, sets: Sets = ()) -> Recipe:
    """Read and check a recipe file: a training run.

    Args:
        path: the YAML file, or the name of a recipe (see `find_recipe`). Its `base` and its `plugins` are
            relative to it.
        sets: changes laid over the file, for example `trainer.max_steps=100`; a path in them is relative to
            the working directory.

    Raises:
        InputError: the sets, the file or its base cannot be read; if all can be read, every problem of the
            recipe.
    """
    return read_located(path, sets)[0]


def read_located(path: str | Path, sets: Sets = ()) -> tuple[Recipe, Tree]:
    """The recipe of `read_recipe`, and its tree with the location of every key."""
    tree = read_tree(Path(path), sets)
    return validate(tree, training=True), tree


def to_recipe(given: Recipe | Mapping[str, Any] | str | Path, sets: Sets = ()) -> Recipe:
    """A recipe from a recipe, a mapping, or the path of a file.

    Raises:
        InputError: as `read_recipe`.
    """
    if isinstance(given, Recipe):
        return resolve(given.as_dict(), sets) if sets else given
    return resolve(given, sets) if isinstance(given, Mapping) else read_recipe(given, sets)


def resolve(mapping: Mapping[str, Any], sets: Sets = (), trained: bool = False) -> Recipe:
    """Check a recipe that is a plain mapping already, such as `Recipe.as_dict()` gives.

    Args:
        sets: changes laid over it.
        trained: it is that of a trained model: an encoding in the sets keeps the options it does not give.

    Raises:
        InputError: every problem with it.
    """
    if "base" in mapping:
        raise InputError(Problem("only a recipe file can have a base", key="base"))
    tree = Tree(copy.deepcopy(dict(mapping)))
    for where, keys, value in _parse_sets(sets):
        tree.put(keys, value, where)
    _resolve_plugin_paths(tree, Path())
    before, after = mapping.get("model"), tree.values.get("model")
    if trained and isinstance(before, Mapping) and isinstance(after, dict) and after.get("encoding"):
        after["encoding"] = keep_trained_options(before.get("encoding"), after["encoding"])
    return validate(tree)


def dump(recipe: Recipe) -> str:
    """The resolved recipe as YAML that `read_recipe` reads back to the same recipe."""
    return to_yaml(recipe.as_dict())


def dump_used(recipe: Recipe) -> str:
    """The YAML of `dump` without `data.vocab_size` where the tokenizer that is given decides it."""
    values = recipe.as_dict()
    if values["data"].get("tokenizer") not in (None, "characters"):
        values["data"].pop("vocab_size", None)
    return to_yaml(values)


def validate_trainable(recipe: Recipe) -> None:
    """Raises InputError for a recipe that is for evaluating a trained model only."""
    if problems := [Problem(fault.message, fault.key) for fault in not_for_training(recipe)]:
        raise InputError(problems)


def read_tree(path: Path, sets: Sets) -> Tree:
    """A recipe file over its base, with the sets over both; not validated."""
    settings = _parse_sets(sets)
    path = find_recipe(path)
    if not path.exists():
        hint = _near_file(path) or "; `zoo list recipes` lists them"
        raise InputError(Problem(f"no such recipe file{hint}", where=os.path.normpath(path)))
    tree, folder = read_file(path), path.parent
    _resolve_plugin_paths(tree, folder)
    for where, keys, value in settings:
        if keys == ("base",):
            folder = Path()
            tree.put(keys, value, where)
    if tree.values.get("base") is not None:
        base = _read_base(tree, folder)
        base.lay_over(tree)
        tree = base
    tree.values.pop("base", None)
    tree.values.setdefault("name", name_of_file(path))
    for where, keys, value in settings:
        if keys != ("base",):
            tree.put(keys, value, where)
        if keys[0] == "plugins":
            _resolve_plugin_paths(tree, Path())
    return tree


def find_recipe(path: Path, name: str | Path | None = None) -> Path:
    """The file of a recipe: a path, or else a name in `LOCAL` or in `SHIPPED`, where `.yaml` may be left out.

    Returns the path itself if there is no such file.
    """
    name = Path(path if name is None else name)
    inside = Path(*name.parts[1:]) if name.parts[:1] == LOCAL.parts else name
    tried = [path, *(folder / inside for folder in (LOCAL, SHIPPED))]
    files = [file for one in tried for file in (one, one.with_name(f"{one.name}.yaml"))]
    return path if path.exists() else next((file for file in files if file.is_file()), path)


def name_of_file(path: Path) -> str:
    """The name of a run whose recipe does not give one: the file's, with dashes for what a name may not have.

    `my recipe.yaml` is `my-recipe`; never empty.
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem)[:LONGEST_NAME].strip("-._") or "recipe"


def _read_base(tree: Tree, folder: Path) -> Tree:
    """The base of a tree, whose path is relative to a folder."""
    base = tree.values["base"]
    if not isinstance(base, str):
        raise InputError(tree.problem(("base",), f"must be the path of a file, got {describe_value(base)}"))
    path = Path(os.path.normpath(find_recipe(folder / base, base)))
    if not path.is_file():
        raise InputError(tree.problem(("base",), f"no file {path}{_near_file(path)}"))
    below = read_file(path)
    if "base" in below.values:
        message = "a base recipe cannot have a `base` itself"
        raise InputError(below.problem(("base",), message))
    below.values.pop("name", None)  # each recipe has its own
    _resolve_plugin_paths(below, path.parent)
    return below


def _near_file(path: Path) -> str:
    """A hint at the nearest recipe file, in the folder of the path or in recipes/."""
    folders = (SHIPPED, SHIPPED / "base", LOCAL, LOCAL / "base", path.parent)
    known = {file.stem: file for folder in folders for file in folder.glob("*.yaml")}
    near = nearest(path.stem, known)
    return f"; did you mean {shown(known[near])}?" if near else ""


def shown(file: Path) -> Path:
    """A recipe's file as it can be given: one that comes with the zoo by its name."""
    return file.relative_to(SHIPPED) if file.is_relative_to(SHIPPED) else Path(os.path.normpath(file))


def _parse_sets(sets: Sets) -> list[Setting]:
    """The settings of sets. Raises InputError with all that are not of the form."""
    if isinstance(sets, Mapping):
        values = _leaves(sets, ())
        return [(f"--set {dotted(keys)}={to_yaml_line(value)}", keys, value) for keys, value in values]
    settings: list[Setting] = []
    problems: list[Problem] = []
    for text in [sets] if isinstance(sets, str) else sets:
        where = f"--set {shorten(text, 500)}"
        key, equals, value = text.partition("=")
        keys = tuple(key.strip().split("."))
        if equals and all(keys):
            with collect(problems):
                settings.append((where, keys, read_value(value, where)))
        else:
            message = "not of the form key=value, for example trainer.max_steps=100"
            problems.append(Problem(message, where=where))
    if problems:
        raise InputError(problems)
    return settings


def _leaves(values: Mapping[str, Any], above: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """The key path of each value that is not itself a section of the recipe."""
    for key, value in values.items():
        path = (*above, *key.split("."))
        if isinstance(value, Mapping) and path not in NAMED:
            yield from _leaves(value, path)
        else:
            yield path, value


def _resolve_plugin_paths(tree: Tree, folder: Path) -> None:
    """Make the plugins' paths, which are relative to a folder, absolute."""
    plugins = tree.values.get("plugins")
    for index, plugin in enumerate(plugins if isinstance(plugins, list) else ()):
        if isinstance(plugin, str) and plugin:
            plugins[index] = os.path.abspath(folder / plugin)
