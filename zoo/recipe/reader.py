"""From a file, or a mapping, and `--set` to a recipe: parse, lay over the base, set, validate."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem, nearest, shorten
from zoo.recipe.encoding import ENCODING, keep_trained_options
from zoo.recipe.located_tree import KeyPath, Located, describe_value, dotted, located
from zoo.recipe.rules import FOR_TRAINING, RULES, broken_rules
from zoo.recipe.schema import LONGEST_NAME, Recipe
from zoo.recipe.validation import validate_tree
from zoo.recipe.yaml_file import read_file, read_value


def read_recipe(path: str | Path, sets: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe file: a training run.

    Args:
        path: the YAML file. Its `base` and its `plugins` are relative to it.
        sets: `key=value` texts laid over the file, for example `trainer.max_steps=100`; a path in them is
            relative to the working directory.

    Raises:
        InputError: the sets, the file, its base or its plugins cannot be read; if all can be read, every
            problem of the recipe.
    """
    return validate_tree(_read_tree(Path(path), sets), (*RULES, *FOR_TRAINING))


def to_recipe(given: Recipe | Mapping[str, Any] | str | Path, sets: Sequence[str] = ()) -> Recipe:
    """A recipe from what Python code may hold: one already, a mapping, or the path of a file.

    Raises:
        InputError: as `read_recipe`.
    """
    if isinstance(given, Recipe):
        return resolve(given.as_dict(), sets) if sets else given
    return resolve(given, sets) if isinstance(given, Mapping) else read_recipe(given, sets)


def with_locations(error: InputError, path: str | Path, sets: Sequence[str]) -> InputError:
    """The same problems, found only when the run of a recipe file began, each with where its key was set."""
    return InputError(
        replace(problem, where=locate(path, sets, problem.key))
        if problem.key is not None and problem.where is None
        else problem
        for problem in error.problems
    )


def locate(path: str | Path, sets: Sequence[str], key: str) -> str | None:
    """Where a key of a recipe, or else its nearest parent, was set: `file:line` or `--set key=value`.

    Args:
        path, sets: those of `read_recipe`.
        key: dotted, as `model.encoding.slopes`.

    Returns: None where the file cannot be read (any more).
    """
    try:
        tree = _read_tree(Path(path), sets)
    except InputError:
        return None
    return tree.location(tuple(int(part) if part.isdecimal() else part for part in key.split(".")))


def resolve(mapping: Mapping[str, Any], sets: Sequence[str] = (), trained: bool = False) -> Recipe:
    """Check a recipe that is a plain mapping already, such as `Recipe.as_dict()` gives.

    Args:
        sets: `key=value` texts laid over it.
        trained: it is that of a trained model: an encoding in the sets keeps the options it does not give.

    Raises:
        InputError: every problem with it.
    """
    tree = located(dict(mapping))
    if "base" in tree.value:
        raise InputError(Problem("only a recipe file can have a base", key="base"))
    before = _encoding_of(tree).plain()
    for where, keys, value in _parse_sets(sets):
        tree.put(keys, located(value, where))
    _resolve_plugin_paths(tree, Path())
    after = _encoding_of(tree)
    if trained and after.value is not None:
        after.value = located(keep_trained_options(before, after.plain()), after.where).value
    return validate_tree(tree)


def _encoding_of(tree: Located) -> Located:
    nodes = [*tree.find(ENCODING)]
    return nodes[-1] if len(nodes) > len(ENCODING) else Located(None)


def validate_trainable(recipe: Recipe) -> None:
    """Raises InputError for a recipe that is for evaluating a trained model only."""
    broken = broken_rules(recipe.as_dict(), (), FOR_TRAINING)
    if broken:
        raise InputError([Problem(message, key=dotted(path)) for path, (message, _) in broken.items()])


def _read_tree(path: Path, sets: Sequence[str]) -> Located:
    parsed = _parse_sets(sets)
    if not os.path.exists(path):
        hint = _near_file(path) or "; `zoo list recipes` has those there are"
        raise InputError(Problem(f"no such recipe file{hint}", where=os.path.normpath(path)))
    tree = read_file(path)
    _resolve_plugin_paths(tree, path.parent)
    folder = path.parent
    for where, keys, value in parsed:
        if keys == ("base",):
            tree.value["base"], folder = located(value, where), Path()
    base = tree.value.pop("base", None)
    if base is not None and base.value is not None:
        tree = tree.merged_over(_read_base(base, folder))
    tree.value.setdefault("name", Located(name_of_file(path), tree.where))
    for where, keys, value in parsed:
        if keys != ("base",):
            tree.put(keys, located(value, where))
        if keys[0] == "plugins":
            _resolve_plugin_paths(tree, Path())
    return tree


def name_of_file(path: Path) -> str:
    """The name of a run whose recipe does not give one, from that of its file; anything that no name may have
    becomes a dash. `my recipe.yaml` is `my-recipe`; never empty."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem)[:LONGEST_NAME].strip("-._") or "recipe"


def _read_base(base: Located, folder: Path) -> Located:
    """The tree of a base, whose path is relative to a folder."""
    if not isinstance(base.value, str):
        message = f"must be the path of a file, got {describe_value(base.plain())}"
        raise InputError(Problem(message, key="base", where=base.where))
    path = Path(os.path.normpath(folder / base.value))
    if not os.path.isfile(path):
        raise InputError(Problem(f"no file {path}{_near_file(path)}", key="base", where=base.where))
    tree = read_file(path)
    if "base" in tree.value:
        message = "a base has no base of its own: one level is all there is"
        raise InputError(tree.problem(("base",), message))
    tree.value.pop("name", None)  # each recipe has its own
    _resolve_plugin_paths(tree, path.parent)
    return tree


def _near_file(path: Path) -> str:
    """A hint at the nearest recipe file, in the folder of the path or in recipes/."""
    folders = (Path("recipes"), Path("recipes/base"), path.parent)
    known = {file.stem: file for folder in folders if os.path.isdir(folder) for file in folder.glob("*.yaml")}
    near = nearest(path.stem, known)
    return f"; did you mean {os.path.normpath(known[near])}?" if near else ""


def _parse_sets(sets: Sequence[str]) -> list[tuple[str, KeyPath, Any]]:
    """Location, key path and value of each `key=value`. Raises InputError for all that are none."""
    parsed: list[tuple[str, KeyPath, Any]] = []
    problems: list[Problem] = []
    for text in sets:
        where = f"--set {shorten(text, 500)}"
        key, equals, value = text.partition("=")
        keys = tuple(key.strip().split("."))
        if not equals or not all(keys):
            message = "not of the form key=value, for example trainer.max_steps=100"
            problems.append(Problem(message, where=where))
            continue
        try:
            parsed.append((where, keys, read_value(value, where)))
        except InputError as error:
            problems += [Problem(p.message, key=dotted(keys), where=where) for p in error.problems]
    if problems:
        raise InputError(problems)
    return parsed


def _resolve_plugin_paths(tree: Located, folder: Path) -> None:
    """Make the plugins' paths, which are relative to a folder, absolute."""
    plugins = tree.value.get("plugins", Located(None)).value
    for plugin in plugins if isinstance(plugins, list) else ():
        if isinstance(plugin.value, str) and plugin.value:
            plugin.value = os.path.abspath(folder / plugin.value)
