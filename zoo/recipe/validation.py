"""Validation of the tree of a recipe; every problem has its location."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from zoo import registry
from zoo.errors import InputError, Problem, nearest
from zoo.recipe.encoding import ENCODING, Faults, check_encoding
from zoo.recipe.error_messages import explain_validation_error
from zoo.recipe.located_tree import KeyPath, Located, is_from_command_line
from zoo.recipe.rules import RULES, Rule, broken_rules
from zoo.recipe.schema import Recipe, section_class
from zoo.recipe.sections import usual_task
from zoo.recipe.trainer import OWNED

LENGTH_FACTORS = (1, 2, 4)
"""The lengths of evaluation by default, as multiples of the trained length."""


def validate_tree(tree: Located, rules: Sequence[Rule] = RULES) -> Recipe:
    """The recipe of a tree.

    Raises:
        InputError: every problem of its plugins, which decide what names there are; else every other problem.
    """
    _load_plugins(tree)
    values = tree.plain()
    unsure = _fill_in(values)
    faults = _check_names(values)
    recipe = None
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        explained = explain_validation_error(error, values, _valid_keys(values))
        # Of a section without a right name nothing else has been looked at.
        unsure += [path[:1] for path in explained if path[1:] in (("name",), ("schedule",))]
        faults |= explained
    broken = broken_rules(values, [*faults, *unsure], rules)

    problems = [tree.problem(path, message) for path, message in faults.items()]
    problems += [tree.problem(path, *rule) for path, rule in broken.items() if path not in faults]
    if problems or recipe is None:
        raise InputError(sorted(problems, key=_order))
    return recipe


def _load_plugins(tree: Located) -> None:
    problems = []
    for index, plugin in enumerate(_as(list, tree.plain().get("plugins"))):
        if not isinstance(plugin, str):
            continue  # the schema reports it
        try:
            registry.load_plugin(plugin)
        except InputError as error:
            for problem in error.problems:
                message = ": ".join(part for part in (problem.where, problem.message) if part)
                problems.append(tree.problem(("plugins", index), message))
    if problems:
        raise InputError(problems)


def _fill_in(values: dict[str, Any]) -> list[KeyPath]:
    """Make explicit what follows from other keys; the key paths where that could only be guessed."""
    for name in Recipe.model_fields:
        if values.get(name, ...) is None:
            del values[name]  # `checkpoint:` with nothing under it changes nothing
    data, model = _as(dict, values.get("data")), _as(dict, values.get("model"))
    usual = usual_task(data.get("name"), model.get("kind"))
    # Where data or kind are wrong there is a problem already; any task will do to find the others.
    guessed = [] if usual or "task" in values else [("task",)]
    values.setdefault("task", {"name": usual or registry.tasks.names()[0]})
    evaluate, length = values.setdefault("evaluate", {}), data.get("sequence_length")
    if isinstance(evaluate, dict):
        if evaluate.get("lengths") is None and isinstance(length, int | float) and 0 < length == length // 1:
            # 64.0 is a length as well: the schema takes a whole number however it is written.
            evaluate["lengths"] = [factor * int(length) for factor in LENGTH_FACTORS]
        task = values["task"]
        known = registry.tasks.all().get(str(task.get("name") if isinstance(task, dict) else task))
        if evaluate.get("protocols") is None and known is not None and known.protocols:
            evaluate["protocols"] = [known.protocols[0]]
    return guessed


def _check_names(values: dict[str, Any]) -> Faults:
    """Resolve the encoding, and report a misspelt dataset; it is replaced by the nearest, which decides what
    the other keys mean."""
    faults: Faults = {}
    model, data = _as(dict, values.get("model")), _as(dict, values.get("data"))
    if "encoding" in model:
        model["encoding"], faults = check_encoding(model["encoding"], ENCODING)
    name, known = data.get("name"), registry.datasets.names()
    near = nearest(name, known) if isinstance(name, str) and name not in known else None
    if near is not None:
        data["name"] = near
        faults["data", "name"] = registry.datasets.unknown(name)
    return faults


def _as(kind: type, value: Any) -> Any:
    """The value if it is of a kind, else an empty one of that."""
    return value if isinstance(value, kind) else kind()


def _valid_keys(values: dict[str, Any]) -> dict[KeyPath, list[str]]:
    keys: dict[KeyPath, list[str]] = {(): [*Recipe.model_fields, "base"]}
    for name in Recipe.model_fields:
        owner = section_class(name, values.get(name))
        if owner is not None:
            keys[(name,)] = [key for key in owner.model_fields if key not in OWNED]
    return keys


def _order(problem: Problem) -> tuple[bool, str, int, str]:
    """By file and line; settings of the command line come last."""
    where = problem.where or ""
    file, _, line = where.rpartition(":")
    number = int(line) if line.isdecimal() else 0
    return is_from_command_line(where), file if number else where, number, problem.key or ""
