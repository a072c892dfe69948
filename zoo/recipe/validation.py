"""From the tree of a recipe to the recipe, in stages: plugins, names, values, rules."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from zoo import registry
from zoo.errors import InputError, Problem
from zoo.recipe.encoding import ENCODING, check_encoding
from zoo.recipe.error_messages import Faults, explain_validation_error
from zoo.recipe.rules import broken_rules, not_for_training
from zoo.recipe.schema import SCALES, Recipe, section_class
from zoo.recipe.sections import NAMES, DuringConfig, name_in, usual_task
from zoo.recipe.trainer import OWNED, lightning_class
from zoo.recipe.tree import KeyPath, Tree, is_from_command_line, key_path

LENGTH_FACTORS = (1, 2, 4)
"""The lengths of evaluation by default, as multiples of the trained length."""


def validate(tree: Tree, training: bool = False) -> Recipe:
    """The recipe of a tree, which is to be trained or for a trained model.

    Raises:
        InputError: every problem of the first stage that has any: plugins, which may define names and
            options; names, and the options of encodings; other keys and values; rules between them.
    """
    values = copy.deepcopy(tree.values)
    _raise(tree.problem(*fault) for fault in _plugin_faults(values).items())
    _fill_in(values)
    _raise(tree.problem(*fault) for fault in _name_faults(values).items())
    recipe = _parsed(tree, values)
    broken = [*broken_rules(recipe), *(not_for_training(recipe) if training else ())]
    first = {fault.key: fault for fault in reversed(broken)}  # of several at a key
    _raise(
        tree.problem(key_path(key), fault.message, map(key_path, fault.involved))
        for key, fault in first.items()
    )
    return recipe


def recipe_of_run(stored: Mapping[str, Any]) -> Recipe:
    """The stored recipe of a run. Its plugins are not imported: their options stay as they were stored, and a
    key that has come since has its default.

    Raises:
        InputError: not a recipe.
    """
    values = copy.deepcopy(dict(stored))
    _fill_in(values)
    model = _as(dict, values.get("model"))
    model.setdefault("init_std", 0.02)  # of versions that had no such key
    encoding, faults = check_encoding(model.get("encoding"), ENCODING)
    if not faults:
        model["encoding"] = encoding
    return _parsed(Tree(values), values, stored=True)


def _parsed(tree: Tree, values: dict[str, Any], stored: bool = False) -> Recipe:
    """The recipe with these values; InputError with every key and value that is wrong."""
    try:
        return Recipe.model_validate(values, context={"stored": True} if stored else None)
    except ValidationError as error:
        faults = explain_validation_error(error, values, _valid_keys(values))
        owned = {("trainer", key): f"cannot be set in a recipe: {why}" for key, why in OWNED.items()}
        _raise(tree.problem(path, owned.get(path, message)) for path, message in faults.items())


def _raise(problems: Iterable[Problem]) -> None:
    """Raise InputError where there are problems, by file and line; settings of the command line come last."""

    def order(problem: Problem) -> tuple[bool, str, int, str]:
        where = problem.where or ""
        file, _, line = where.rpartition(":")
        number = int(line) if line.isdecimal() else 0
        return is_from_command_line(where), file if number else where, number, problem.key or ""

    if found := sorted(problems, key=order):
        raise InputError(found)


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


def _name_faults(values: dict[str, Any]) -> Faults:
    """The names that are not registered, and all that is wrong in the encoding, which gets its options."""
    faults: Faults = {}
    for section, kinds in NAMES.items():
        for key, kind in kinds.items():
            given = name_in(section, key, _as(dict, values.get(section)))
            for index, name in enumerate(given if isinstance(given, list) else [given]):
                if isinstance(name, str) and name not in kind.all():
                    path = (section, key, index) if isinstance(given, list) else (section, key)
                    faults[path] = kind.unknown(name)
    model = _as(dict, values.get("model"))
    if "encoding" in model:
        model["encoding"], wrong = check_encoding(model["encoding"], ENCODING)
        faults |= wrong
    return faults


def _valid_keys(values: dict[str, Any]) -> dict[KeyPath, list[str]]:
    keys: dict[KeyPath, list[str]] = {(): [*Recipe.model_fields, "base"]}
    keys["evaluate", "during"] = [*DuringConfig.model_fields]
    for name in Recipe.model_fields:
        if owner := section_class(name, values.get(name)):
            keys[(name,)] = [*owner.model_fields]
    keys["trainer",] = [*lightning_class().model_fields]
    scale = _as(dict, _as(dict, values.get("model")).get("logit_scale"))
    if scale.get("name") in [*SCALES]:
        keys["model", "logit_scale"] = [*SCALES[scale["name"]].model_fields]
    return keys


def _fill_in(values: dict[str, Any]) -> None:
    """Make explicit what follows from other keys."""
    for name in Recipe.model_fields:
        if values.get(name, ...) is None:
            del values[name]  # `checkpoint:` with nothing under it changes nothing
    _as(dict, values.get("checkpoint")).pop("sharded", None)  # stored by versions that wrote shards
    data, model = _as(dict, values.get("data")), _as(dict, values.get("model"))
    # Where no task fits, a rule says why the first does not.
    usual = usual_task(data.get("name"), model.get("kind")) or registry.tasks.names()[0]
    task = values.setdefault("task", {"name": usual})
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


def _as(kind: type, value: Any) -> Any:
    """The value if it is of a kind, else an empty one of that."""
    return value if isinstance(value, kind) else kind()
