"""From a file, or a mapping, to a recipe: all that is wrong is told at once, each with its file and line."""

from __future__ import annotations

import copy
import difflib
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from zoo.encodings import registry
from zoo.errors import InputError, Problem
from zoo.recipe.after_training import taken_over
from zoo.recipe.catalogue import DATASETS, LENGTH_FACTORS, TASKS, section_class, usual_task
from zoo.recipe.explain import explain, nearest, one_of
from zoo.recipe.fields import Section
from zoo.recipe.options import OWNED, Faults, check_encoding, check_trainer
from zoo.recipe.rules import FOR_TRAINING, RULES, Rule, Values, broken_rules
from zoo.recipe.schema import Recipe, TrainerConfig
from zoo.recipe.tree import Path_, Tree, dotted, is_set, spoken
from zoo.recipe.yaml_file import RESOLVERS, read_file, read_value

ENCODING = ("model", "encoding")


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
    return _check(tree, problems, (*RULES, *FOR_TRAINING))


def locate(path: str | Path, sets: Sequence[str], key: str) -> str | None:
    """Where a key of a recipe, or else its nearest parent, was said: `file:line` or `--set key=value`.

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
    below = {place for path, place in tree.places.items() if path[: len(owner)] == owner and is_set(place)}
    return below.pop() if len(below) == 1 else tree.where(owner)


def resolve(mapping: Mapping[str, Any], sets: Sequence[str] = (), trained: bool = False) -> Recipe:
    """Check a recipe that is a plain mapping already, such as `Recipe.as_dict()` gives.

    Args:
        sets: `key=value` texts laid over it.
        trained: it is that of a trained model: an encoding in the sets keeps what it does not say itself.

    Raises:
        InputError: every problem with it.
    """
    tree = Tree(values=copy.deepcopy(dict(mapping)))
    problems: list[Problem] = []
    if "base" in tree.values:
        problems.append(Problem("only a recipe file can have a base", key="base"))
        del tree.values["base"]
    before = copy.deepcopy(tree.get(ENCODING))
    for where, keys, value in _parse_sets(sets, problems):
        _put(tree, keys, value, where, problems)
    _place_plugins(tree, Path())
    if trained and tree.get(ENCODING) is not None:
        tree.values["model"]["encoding"] = taken_over(before, tree.get(ENCODING))
    return _check(tree, problems)


def must_train(recipe: Recipe) -> None:
    """Raises InputError for a recipe that says how a trained model is evaluated, not how one is trained."""
    broken = broken_rules(Values(recipe.as_dict(), ()), FOR_TRAINING)
    if broken:
        raise InputError([Problem(rule.message, key=dotted(path)) for path, rule in broken.items()])


def dump(recipe: Recipe) -> str:
    """The resolved recipe as YAML that `read_recipe` reads back to the same recipe."""
    return yaml.dump(recipe.as_dict(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def spell(value: Any) -> str:
    """A plain value as one line of YAML: what `--set key=` takes to mean just that."""
    text = yaml.dump(
        value,
        Dumper=_LineDumper,
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=math.inf,
    )
    return text.removesuffix("\n").removesuffix("\n...")


class _Dumper(yaml.SafeDumper):
    """Plain YAML that quotes whatever either of the two YAMLs would take for something other than text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own registry)
        first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, []), *RESOLVERS.get(first, [])]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *RESOLVERS}
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _list(dumper: _Dumper, data: list[Any]) -> yaml.Node:
    flow = not any(isinstance(item, dict | list) for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)


_Dumper.add_representer(list, _list)


class _LineDumper(_Dumper):
    """All on one line."""


_LineDumper.add_representer(list, yaml.SafeDumper.represent_list)


def _read_tree(path: Path, sets: Sequence[str]) -> tuple[Tree, list[Problem]]:
    problems: list[Problem] = []
    _must_exist(path)
    parsed = list(_parse_sets(sets, problems))
    tree = read_file(path)
    _place_plugins(tree, path.parent)
    here = path.parent
    for where, keys, value in parsed:
        if keys == ("base",):
            tree.values["base"], tree.places[keys], here = value, where, Path()
    if tree.values.get("base") is not None:
        base = _read_base(tree, here, problems)
        if base is not None:
            tree = tree.merged_over(base)
    tree.values.pop("base", None)
    if "name" not in tree.values:
        tree.values["name"] = path.stem
    for where, keys, value in parsed:
        if keys == ("base",):
            continue
        _put(tree, keys, value, where, problems)
        if keys[0] == "plugins":
            _place_plugins(tree, Path())
    return tree, [*tree.problems, *problems]


def _read_base(tree: Tree, folder: Path, problems: list[Problem]) -> Tree | None:
    name = tree.values["base"]
    if not isinstance(name, str):
        problems.append(tree.problem(("base",), f"must be the path of a file, got {spoken(name)}"))
        return None
    path = Path(os.path.normpath(folder / name))
    if not path.is_file():
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
    _place_plugins(base, path.parent)
    return base


def _must_exist(path: Path) -> None:
    if path.is_file():
        return
    what = "is a folder, not a recipe file" if path.is_dir() else "no such recipe file"
    hint = _near_file(path) or "; `zoo list recipes` has those there are"
    raise InputError(Problem(what + hint, where=_shown(path)))


def _near_file(path: Path) -> str:
    """A hint at the recipe file that was meant: beside the path, or in recipes/."""
    known: dict[str, Path] = {}
    for folder in (Path("recipes"), Path("recipes/base"), path if path.is_dir() else path.parent):
        if folder.is_dir():
            known.update({file.stem: file for file in sorted(folder.glob("*.yaml"))})
    near = difflib.get_close_matches(path.stem, known, n=1)
    return f"; did you mean {_shown(known[near[0]])}?" if near else ""


def _shown(path: Path) -> str:
    return os.path.normpath(path)


def _parse_sets(sets: Sequence[str], problems: list[Problem]) -> list[tuple[str, Path_, Any]]:
    parsed: list[tuple[str, Path_, Any]] = []
    for text in sets:
        where = f"--set {text}"
        key, equals, value = text.partition("=")
        keys = tuple(key.strip().split("."))
        if not equals or not all(keys):
            problems.append(
                Problem("not of the form key=value, for example trainer.max_steps=100", where=where)
            )
            continue
        try:
            parsed.append((where, keys, read_value(value, where)))
        except InputError as error:
            problems += [Problem(p.message, key=dotted(keys), where=where) for p in error.problems]
    return parsed


def _put(tree: Tree, keys: Path_, value: Any, where: str, problems: list[Problem]) -> None:
    try:
        tree.put(keys, value, where)
    except ValueError as error:
        problems.append(Problem(str(error), key=dotted(keys), where=where))


def _place_plugins(tree: Tree, folder: Path) -> None:
    """Make the plugins' paths absolute: what they are relative to is known only here."""
    plugins = tree.values.get("plugins")
    if isinstance(plugins, list):
        tree.values["plugins"] = [
            os.path.abspath(folder / plugin) if isinstance(plugin, str) and plugin else plugin
            for plugin in plugins
        ]


def _check(tree: Tree, problems: list[Problem], rules: Sequence[Rule] = RULES) -> Recipe:
    """The recipe of a tree; every problem, and those found before, if there are any."""
    plugin_problems = _read_plugins(tree)
    problems = [*problems, *plugin_problems]
    values = tree.values
    short_task = isinstance(values.get("task"), str)
    guessed = _fill_in(tree)
    faults: Faults = {}

    encoding = tree.get(ENCODING, default=...)
    if encoding is not ...:
        values["model"]["encoding"], found = check_encoding(encoding, ENCODING)
        # Where a plugin cannot be read nobody knows which encodings there are.
        faults.update({} if plugin_problems else found)
    faults.update(_take_nearest_dataset(values.get("data")))
    trainer = values.get("trainer")
    if isinstance(trainer, dict):
        flags, found = check_trainer(trainer, ("trainer",))
        own = {key: value for key, value in trainer.items() if key in TrainerConfig.model_fields}
        values["trainer"] = {**own, **flags}
        faults.update(found)

    recipe = None
    unsure = [*guessed, *tree.unread, *([ENCODING] if plugin_problems else [])]
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        explained = explain(error, values, _valid_keys(values))
        # Of a section without a right name nothing else has been looked at.
        unsure += [path[:1] for path in explained if path[1:] == ("name",)]
        faults.update(explained)
    broken = broken_rules(Values(values, [*faults, *unsure]), rules)
    if short_task and ("task", "name") in faults:
        faults[("task",)] = faults.pop(("task", "name"))

    # A value that could not be read has its problem; that it is null is none.
    problems += [tree.problem(path, told) for path, told in faults.items() if path not in tree.unread]
    problems += [
        tree.problem(path, rule.message, rule.involved) for path, rule in broken.items() if path not in faults
    ]
    if problems or recipe is None:
        raise InputError(sorted(problems, key=_order))
    return recipe


def _take_nearest_dataset(data: Any) -> Faults:
    """Tell the right name of a misspelt dataset, and go on with it: it decides what the other keys mean."""
    name = data.get("name") if isinstance(data, dict) else None
    near = nearest(name, DATASETS) if isinstance(name, str) and name not in DATASETS else None
    if near is None:
        return {}
    data["name"] = near
    return {("data", "name"): one_of(name, DATASETS, "dataset")}


def _read_plugins(tree: Tree) -> list[Problem]:
    problems = []
    plugins = tree.values.get("plugins")
    for index, plugin in enumerate(plugins if isinstance(plugins, list) else ()):
        if not isinstance(plugin, str):
            continue  # the schema tells
        try:
            registry.read_plugin(plugin)
        except InputError as error:
            problems += [tree.problem(("plugins", index), problem.message) for problem in error.problems]
    return problems


def _fill_in(tree: Tree) -> list[Path_]:
    """Make explicit what follows from other keys; the key paths where that could only be guessed."""
    values = tree.values
    guessed: list[Path_] = []

    def section(name: str) -> dict[str, Any]:
        found = values.get(name)
        return found if isinstance(found, dict) else {}

    for name, value in list(values.items()):
        # `checkpoint:` with nothing under it says nothing.
        if value is None and name in Recipe.model_fields:
            del values[name]
    if isinstance(values.get("task"), str):
        values["task"] = {"name": values["task"]}
    if "task" not in values:
        usual = usual_task(section("data").get("name"), section("model").get("kind"))
        # Where data or kind are wrong there is a problem already; any task will do to find the others.
        values["task"] = {"name": usual or next(iter(TASKS))}
        guessed += [] if usual else [("task",)]
    evaluate = values.setdefault("evaluate", {})
    if not isinstance(evaluate, dict):
        return guessed
    length, task = section("data").get("sequence_length"), section("task").get("name")
    if (
        evaluate.get("lengths") is None
        and isinstance(length, int)
        and not isinstance(length, bool)
        and length > 0
    ):
        evaluate["lengths"] = [factor * length for factor in LENGTH_FACTORS]
        place = tree.where(("data", "sequence_length"))
        if place is not None:
            tree.places["evaluate", "lengths"] = place
    if evaluate.get("protocols") is None and task in [*TASKS]:
        evaluate["protocols"] = [TASKS[task].protocols[0]]
    return guessed


def _valid_keys(values: dict[str, Any]) -> dict[Path_, list[str]]:
    keys: dict[Path_, list[str]] = {(): [*Recipe.model_fields, "base"]}
    for name in Recipe.model_fields:
        value = values.get(name)
        owner: type[Section] | None = section_class(
            name, value.get("name") if isinstance(value, dict) else None
        )
        if owner is not None:
            keys[(name,)] = [key for key in owner.model_fields if key not in OWNED]
    return keys


def _order(problem: Problem) -> tuple[Any, ...]:
    """By file and line; what was set on the command line comes last."""
    where = problem.where or ""
    match = re.fullmatch(r"(.*):(\d+)", where)
    if match and not is_set(where):
        return 0, match[1], int(match[2]), problem.key or ""
    return (1 if is_set(where) else 0), where, 0, problem.key or ""
