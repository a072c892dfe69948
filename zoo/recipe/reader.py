"""From a file, or a mapping, and `--set` to a recipe; all problems are reported at once."""

from __future__ import annotations

import copy
import difflib
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem
from zoo.recipe.after_training import ENCODING, keep_trained_options
from zoo.recipe.error_messages import LONGEST_WORD
from zoo.recipe.located_tree import (
    MAX_DEPTH,
    KeyPath,
    LocatedTree,
    describe_value,
    dotted,
    is_from_command_line,
    plain_data_faults,
    scalar_fault,
    shorten,
)
from zoo.recipe.rules import FOR_TRAINING, RULES, Values, broken_rules
from zoo.recipe.schema import LONGEST_NAME, Recipe
from zoo.recipe.validation import validate_tree
from zoo.recipe.yaml_file import read_file, read_value

LONGEST_SET = 500
"""Characters of a `--set` that are shown."""


def read_recipe(path: str | Path, sets: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe file: a training run.

    Args:
        path: the YAML file. Its `base` and its `plugins` are relative to it.
        sets: `key=value` texts laid over the file, for example `trainer.max_steps=100`; a path in them is
            relative to the working directory.

    Raises:
        InputError: every problem with the file, its base, its plugins and the sets.
    """
    tree, problems = _read_tree(Path(path), sets)
    return validate_tree(tree, problems, (*RULES, *FOR_TRAINING))


def locate(path: str | Path, sets: Sequence[str], key: str) -> str | None:
    """Where a key of a recipe, or else its nearest parent, was set: `file:line` or `--set key=value`.

    Of a mapping in which the sets changed one thing, it is that set: the rest stood in the file before.

    Args:
        path, sets: those of `read_recipe`.
        key: dotted, as `model.encoding.slopes`.

    Returns: None where the file cannot be read (any more).
    """
    try:
        tree, _ = _read_tree(Path(path), sets)
    except InputError:
        return None
    owner = tree.path(key)
    below = {
        where
        for path, where in tree.locations.items()
        if path[: len(owner)] == owner and is_from_command_line(where)
    }
    return below.pop() if len(below) == 1 else tree.where(owner)


def resolve(mapping: Mapping[str, Any], sets: Sequence[str] = (), trained: bool = False) -> Recipe:
    """Check a recipe that is a plain mapping already, such as `Recipe.as_dict()` gives.

    Args:
        sets: `key=value` texts laid over it.
        trained: it is that of a trained model: an encoding in the sets keeps what it does not say itself.

    Raises:
        InputError: every problem with it.
    """
    beyond = plain_data_faults(dict(mapping))
    if beyond:
        raise InputError([Problem(fault, key=dotted(path) or None) for path, fault in beyond])
    tree = LocatedTree(values=copy.deepcopy(dict(mapping)))
    problems: list[Problem] = []
    if "base" in tree.values:
        problems.append(Problem("only a recipe file can have a base", key="base"))
        del tree.values["base"]
    before = copy.deepcopy(tree.get(ENCODING))
    for where, keys, value in _parse_sets(sets, problems):
        _set_key(tree, keys, value, where, problems)
    _resolve_plugin_paths(tree, Path())
    if trained and tree.get(ENCODING) is not None:
        tree.values["model"]["encoding"] = keep_trained_options(before, tree.get(ENCODING))
    return validate_tree(tree, problems)


def validate_trainable(recipe: Recipe) -> None:
    """Raises InputError for a recipe that is for evaluating a trained model only."""
    broken = broken_rules(Values(recipe.as_dict(), ()), FOR_TRAINING)
    if broken:
        raise InputError([Problem(rule.message, key=dotted(path)) for path, rule in broken.items()])


def _read_tree(path: Path, sets: Sequence[str]) -> tuple[LocatedTree, list[Problem]]:
    problems: list[Problem] = []
    _validate_exists(path)
    parsed = list(_parse_sets(sets, problems))
    tree = read_file(path)
    _resolve_plugin_paths(tree, path.parent)
    here = path.parent
    for where, keys, value in parsed:
        if keys == ("base",):
            tree.values["base"], tree.locations[keys], here = value, where, Path()
    if tree.values.get("base") is not None:
        base = _read_base(tree, here, problems)
        if base is not None:
            tree = tree.merged_over(base)
    tree.values.pop("base", None)
    if "name" not in tree.values:
        tree.values["name"] = name_of_file(path)
    for where, keys, value in parsed:
        if keys == ("base",):
            continue
        _set_key(tree, keys, value, where, problems)
        if keys[0] == "plugins":
            _resolve_plugin_paths(tree, Path())
    return tree, [*tree.problems, *problems]


def name_of_file(path: Path) -> str:
    """The name of a run whose recipe does not give one, from that of its file: letters lose their accents,
    anything else that no name may have becomes a dash. `ré cipe.yaml` is `re-cipe`; never empty."""
    stem = os.fsencode(path.stem).decode("utf-8", "replace")
    apart = unicodedata.normalize("NFKD", stem)
    plain = "".join(one for one in apart if not unicodedata.combining(one))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain)[:LONGEST_NAME].strip("-._") or "recipe"


def _read_base(tree: LocatedTree, folder: Path, problems: list[Problem]) -> LocatedTree | None:
    name = tree.values["base"]
    if not isinstance(name, str):
        problems.append(tree.problem(("base",), f"must be the path of a file, got {describe_value(name)}"))
        return None
    path = Path(os.path.normpath(folder / name))
    if not _is_file(path):
        problems.append(tree.problem(("base",), f"no file {_shown(path)}{_near_file(path)}"))
        return None
    try:
        base = read_file(path)
    except InputError as error:
        problems += error.problems
        return None
    if "base" in base.values:
        problems.append(base.problem(("base",), "a base has no base of its own: one level is all there is"))
        del base.values["base"]
    base.values.pop("name", None)  # each recipe has its own
    _resolve_plugin_paths(base, path.parent)
    return base


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have, or no permission to look
        return False


def _validate_exists(path: Path) -> None:
    if _is_file(path):
        return
    what = "no such recipe file"
    if os.path.isdir(path):
        what = "is a folder, not a recipe file"
    elif os.path.exists(path):
        what = "is no ordinary file but a pipe or a device: write the recipe to a file"
        raise InputError(Problem(what, where=_shown(path)))
    elif os.path.islink(path):
        what = f"no such recipe file: it is a link to {os.readlink(path)}, which is not there"
    hint = _near_file(path) or "; `zoo list recipes` has those there are"
    raise InputError(Problem(what + hint, where=_shown(path)))


def _near_file(path: Path) -> str:
    """A hint at the recipe file that was meant: beside the path, or in recipes/."""
    known: dict[str, Path] = {}
    for folder in (Path("recipes"), Path("recipes/base"), path if os.path.isdir(path) else path.parent):
        if os.path.isdir(folder):
            known.update({file.stem: file for file in sorted(folder.glob("*.yaml")) if _is_file(file)})
    near = difflib.get_close_matches(path.stem, known, n=1) if len(path.stem) <= LONGEST_WORD else []
    return f"; did you mean {_shown(known[near[0]])}?" if near else ""


def _shown(path: Path) -> str:
    return os.path.normpath(path)


def _parse_sets(sets: Sequence[str], problems: list[Problem]) -> list[tuple[str, KeyPath, Any]]:
    parsed: list[tuple[str, KeyPath, Any]] = []
    for text in sets:
        where = f"--set {shorten(text, LONGEST_SET)}"
        key, equals, value = text.partition("=")
        keys = tuple(key.strip().split("."))
        if not equals or not all(keys) or len(keys) > MAX_DEPTH or any(map(scalar_fault, keys)):
            problems.append(
                Problem("not of the form key=value, for example trainer.max_steps=100", where=where)
            )
            continue
        try:
            parsed.append((where, keys, read_value(value, where)))
        except InputError as error:
            problems += [Problem(p.message, key=dotted(keys), where=where) for p in error.problems]
    return parsed


def _set_key(tree: LocatedTree, keys: KeyPath, value: Any, where: str, problems: list[Problem]) -> None:
    try:
        tree.put(keys, value, where)
    except ValueError as error:
        problems.append(Problem(str(error), key=dotted(keys), where=where))


def _resolve_plugin_paths(tree: LocatedTree, folder: Path) -> None:
    """Make the plugins' paths absolute: what they are relative to is known only here."""
    plugins = tree.values.get("plugins")
    if isinstance(plugins, list):
        tree.values["plugins"] = [
            os.path.abspath(folder / plugin) if isinstance(plugin, str) and plugin else plugin
            for plugin in plugins
        ]
