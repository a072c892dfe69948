"""From the tree of a recipe to the recipe: plugins, names, defaults, types and rules."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from zoo import registry
from zoo.errors import InputError, Problem
from zoo.recipe.encoding import ENCODING, Faults, check_encoding
from zoo.recipe.error_messages import explain_validation_error
from zoo.recipe.rules import RULES, Rule, broken_rules
from zoo.recipe.schema import SCALES, Recipe, section_class
from zoo.recipe.sections import NAMES, name_in, usual_task
from zoo.recipe.trainer import OWNED
from zoo.recipe.tree import Tree, is_from_command_line

LENGTH_FACTORS = (1, 2, 4)
"""The lengths of evaluation by default, as multiples of the trained length."""


def validate(tree: Tree, rules: Sequence[Rule] = RULES) -> Recipe:
    """The recipe of a tree.

    Raises:
        InputError: every problem; those of plugins alone, which may define names and options.
    """
    values = copy.deepcopy(tree.values)
    if plugins := _plugin_faults(values):
        raise InputError(tree.problem(path, message) for path, message in plugins.items())
    unsure = _fill_in(values)
    faults = _name_faults(values)
    model = _as(dict, values.get("model"))
    if "encoding" in model:
        model["encoding"], wrong = check_encoding(model["encoding"], ENCODING)
        faults |= wrong
    recipe = None
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        faults = explain_validation_error(error, values, _valid_keys(values)) | faults
    trainer = _as(dict, values.get("trainer"))
    owned = [key for key in trainer if key in OWNED]
    faults |= {("trainer", key): f"cannot be set in a recipe: {OWNED[key]}" for key in owned}
    broken = broken_rules(values, [*faults, *unsure], rules)
    problems = [tree.problem(path, message) for path, message in faults.items()]
    problems += [tree.problem(path, *rule) for path, rule in broken.items() if path not in faults]
    if problems or recipe is None:
        raise InputError(sorted(problems, key=_order))
    return recipe


def recipe_of_run(stored: Mapping[str, Any]) -> Recipe:
    """The stored recipe of a run. Its plugins are not imported: their options stay as they were stored, and a
    key that has come since has its default.

    Raises:
        InputError: not a recipe.
    """
    values = copy.deepcopy(dict(stored))
    _fill_in(values)
    trainer = _as(dict, values.get("trainer"))
    if trainer.get("strategy") == "fsdp":
        trainer["strategy"] = "ddp"  # stored by versions that had it; the weights agree to rounding
    model = _as(dict, values.get("model"))
    model.setdefault("init_std", 0.02)  # of versions that had no such key
    encoding, faults = check_encoding(model.get("encoding"), ENCODING)
    if not faults:
        model["encoding"] = encoding
    try:
        return Recipe.model_validate(values, context={"stored": True})
    except ValidationError as error:
        explained = explain_validation_error(error, values, _valid_keys(values))
        raise InputError([Tree(values).problem(*one) for one in explained.items()]) from error


def _plugin_faults(values: dict[str, Any]) -> Faults:
    """Import the plugins; the faults of those that cannot be imported."""
    faults: Faults = {}
    for index, plugin in enumerate(_as(list, values.get("plugins"))):
        try:
            # The schema reports one that is not text.
            registry.load_plugin(plugin) if isinstance(plugin, str) else None
        except InputError as error:
            faults["plugins", index] = str(error)
    return faults


def _fill_in(values: dict[str, Any]) -> Sequence[tuple[str, ...]]:
    """Make explicit what follows from other keys; the key paths where that could only be guessed."""
    for name in Recipe.model_fields:
        if values.get(name, ...) is None:
            del values[name]  # `checkpoint:` with nothing under it changes nothing
    _as(dict, values.get("checkpoint")).pop("sharded", None)  # stored by versions that wrote shards
    data, model = _as(dict, values.get("data")), _as(dict, values.get("model"))
    usual = usual_task(data.get("name"), model.get("kind"))
    # Where data or kind are wrong there is a problem already; any task will do to find the others.
    guessed = [] if usual or "task" in values else [("task",)]
    task = values.setdefault("task", {"name": usual or registry.tasks.names()[0]})
    if isinstance(task, str):
        task = values["task"] = {"name": task}
    evaluate, length = values.setdefault("evaluate", {}), data.get("sequence_length")
    if isinstance(evaluate, dict):
        if evaluate.get("lengths") is None and isinstance(length, int | float) and 0 < length == length // 1:
            # 64.0 is a length as well: the schema takes a whole number however it is written.
            evaluate["lengths"] = [factor * int(length) for factor in LENGTH_FACTORS]
        known = registry.tasks.all().get(str(_as(dict, task).get("name")))
        if evaluate.get("protocols") is None and known is not None and known.protocols:
            evaluate["protocols"] = [known.protocols[0]]
    return guessed


def _name_faults(values: dict[str, Any]) -> Faults:
    """The names that are not registered."""
    faults: Faults = {}
    for section, kinds in NAMES.items():
        value = _as(dict, values.get(section))
        for key, kind in kinds.items():
            name = name_in(section, key, value)
            if isinstance(name, str) and name not in kind.all():
                faults[section, key] = kind.unknown(name)
    return faults


def _as(kind: type, value: Any) -> Any:
    """The value if it is of a kind, else an empty one of that."""
    return value if isinstance(value, kind) else kind()


def _valid_keys(values: dict[str, Any]) -> dict[tuple[str, ...], list[str]]:
    keys: dict[tuple[str, ...], list[str]] = {(): [*Recipe.model_fields, "base"]}
    for name in Recipe.model_fields:
        owner = section_class(name, values.get(name))
        if owner is not None:
            keys[(name,)] = [*owner.model_fields]
    scale = _as(dict, _as(dict, values.get("model")).get("logit_scale"))
    if scale.get("name") in SCALES:
        keys["model", "logit_scale"] = [*SCALES[scale["name"]].model_fields]
    return keys


def _order(problem: Problem) -> tuple[bool, str, int, str]:
    """By file and line; settings of the command line come last."""
    where = problem.where or ""
    file, _, line = where.rpartition(":")
    number = int(line) if line.isdecimal() else 0
    return is_from_command_line(where), file if number else where, number, problem.key or ""
