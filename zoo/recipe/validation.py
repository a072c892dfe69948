"""Validation of a recipe's tree, whatever it was read from; every problem has its location."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from zoo import registry
from zoo.errors import InputError, Problem
from zoo.field_types import Section
from zoo.recipe.after_training import ENCODING
from zoo.recipe.error_messages import explain_validation_error, nearest
from zoo.recipe.located_tree import KeyPath, LocatedTree, is_from_command_line
from zoo.recipe.options import OWNED, Faults, check_encoding, check_trainer
from zoo.recipe.rules import RULES, Rule, Values, broken_rules
from zoo.recipe.schema import Recipe, TrainerConfig, section_class
from zoo.recipe.sections import LENGTH_FACTORS, usual_task


def validate_tree(tree: LocatedTree, problems: list[Problem], rules: Sequence[Rule] = RULES) -> Recipe:
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
        explained = explain_validation_error(error, values, _valid_keys(values))
        # Of a section without a right name nothing else has been looked at.
        unsure += [path[:1] for path in explained if path[1:] in (("name",), ("schedule",))]
        faults.update(explained)
    broken = broken_rules(Values(values, [*faults, *unsure]), rules)
    if short_task and ("task", "name") in faults:
        faults[("task",)] = faults.pop(("task", "name"))

    # A value that could not be read has its problem; that it is null is none.
    problems += [tree.problem(path, message) for path, message in faults.items() if path not in tree.unread]
    problems += [
        tree.problem(path, rule.message, rule.involved) for path, rule in broken.items() if path not in faults
    ]
    if problems or recipe is None:
        raise InputError(sorted(problems, key=_order))
    return recipe


def _take_nearest_dataset(data: Any) -> Faults:
    """Report a misspelt dataset, and go on with the nearest: it decides what the other keys mean."""
    name = data.get("name") if isinstance(data, dict) else None
    known = registry.datasets.names()
    near = nearest(name, known) if isinstance(name, str) and name not in known else None
    if near is None:
        return {}
    data["name"] = near
    return {("data", "name"): registry.datasets.unknown(name)}


def _read_plugins(tree: LocatedTree) -> list[Problem]:
    problems = []
    plugins = tree.values.get("plugins")
    for index, plugin in enumerate(plugins if isinstance(plugins, list) else ()):
        if not isinstance(plugin, str):
            continue  # the schema reports it
        try:
            registry.read_plugin(plugin)
        except InputError as error:
            for problem in error.problems:
                message = ": ".join(part for part in (problem.where, problem.message) if part)
                problems.append(tree.problem(("plugins", index), message))
    return problems


def _fill_in(tree: LocatedTree) -> list[KeyPath]:
    """Make explicit what follows from other keys; the key paths where that could only be guessed."""
    values = tree.values
    guessed: list[KeyPath] = []

    def section(name: str) -> dict[str, Any]:
        found = values.get(name)
        return found if isinstance(found, dict) else {}

    for name, value in list(values.items()):
        # `checkpoint:` with nothing under it changes nothing.
        if value is None and name in Recipe.model_fields:
            del values[name]
    if isinstance(values.get("task"), str):
        values["task"] = {"name": values["task"]}
    if "task" not in values:
        usual = usual_task(section("data").get("name"), section("model").get("kind"))
        # Where data or kind are wrong there is a problem already; any task will do to find the others.
        values["task"] = {"name": usual or next(iter(registry.tasks.all()))}
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
        where = tree.where(("data", "sequence_length"))
        if where is not None:
            tree.locations["evaluate", "lengths"] = where
    known = registry.tasks.all().get(task) if isinstance(task, str) else None
    if evaluate.get("protocols") is None and known is not None and known.protocols:
        evaluate["protocols"] = [known.protocols[0]]
    return guessed


def _valid_keys(values: dict[str, Any]) -> dict[KeyPath, list[str]]:
    keys: dict[KeyPath, list[str]] = {(): [*Recipe.model_fields, "base"]}
    for name in Recipe.model_fields:
        value = values.get(name)
        owner: type[Section] | None = section_class(name, value)
        if owner is not None:
            keys[(name,)] = [key for key in owner.model_fields if key not in OWNED]
    return keys


def _order(problem: Problem) -> tuple[Any, ...]:
    """By file and line; what was set on the command line comes last."""
    where = problem.where or ""
    match = re.fullmatch(r"(.*):(\d+)", where)
    if match and not is_from_command_line(where):
        return 0, match[1], int(match[2]), problem.key or ""
    return (1 if is_from_command_line(where) else 0), where, 0, problem.key or ""
