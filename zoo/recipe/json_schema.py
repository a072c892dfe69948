"""The recipe as JSON Schema, so that editors complete and check it while it is written."""

from __future__ import annotations

from typing import Any

from zoo import registry
from zoo.recipe.fields import Section
from zoo.recipe.schema import Recipe
from zoo.recipe.sections import DataConfig, NamedConfig, OptimizerConfig, config_class
from zoo.recipe.trainer import PRECISION_ALIASES, lightning_class

ENCODING = {"$ref": "#/$defs/encoding"}
# Text, or a mapping with a name: which encodings a plugin brings, a schema cannot know.
_ANY_NAME = [{"type": "string"}, {"type": "object", "required": ["name"]}]
ENCODING_OR_OWN = {
    "anyOf": [ENCODING, *_ANY_NAME, {"type": "array", "items": {"anyOf": _ANY_NAME}, "minItems": 1}]
}
# Over a base, a file may give other keys of a section and not its name.
SECTION_OR_OWN = {"anyOf": [{"type": "string"}, {"type": "object"}]}


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a recipe file: the keys, every known encoding, Lightning's flags.

    No key of a section is required in it: a file may take keys from its base, and a base is not a complete
    recipe. `zoo show` reports missing keys.
    """
    schema = Recipe.model_json_schema()
    properties = schema["properties"]
    schedules = _sorted(registry.schedules)
    named: dict[str, list[type[Section]]] = {
        "data": [config_class(DataConfig, one) for one in _sorted(registry.datasets)],
        "task": [config_class(NamedConfig, one) for one in _sorted(registry.tasks)],
        "optimizer": [config_class(OptimizerConfig, one, *schedules) for one in _sorted(registry.optimizers)],
    }
    members = {key: [one.model_json_schema() for one in classes] for key, classes in named.items()}
    for optimizer in members["optimizer"]:
        optimizer["properties"]["schedule"]["enum"] = registry.schedules.names()
    members["task"].append({"enum": registry.tasks.names()})
    trainer = lightning_class().model_json_schema()
    trainer["properties"]["precision"]["enum"] += PRECISION_ALIASES
    definitions = schema["$defs"] | {"TrainerConfig": trainer}
    for owner in (schema, *definitions.values(), *(one for several in members.values() for one in several)):
        owner.pop("required", None)
        for field in owner.get("properties", {}).values():
            if field.get("default", ...) is None:
                del field["default"]

    definitions |= {key: {"anyOf": several} for key, several in members.items()}
    definitions["encoding"] = _encoding_schema()
    for key in named:
        properties[key] = {"description": properties[key].get("description", "")}
    refs = {key: {"$ref": f"#/$defs/{key}"} for key in named}
    base = {"type": "string", "description": "A recipe file that this one changes; relative to this file."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "$defs": definitions,
        "properties": {"name": properties.pop("name"), "base": base, **properties},
        "if": {"properties": {"plugins": {"type": "array", "minItems": 1}}, "required": ["plugins"]},
        "then": {"properties": {**_encoding_is(ENCODING_OR_OWN), **dict.fromkeys(named, SECTION_OR_OWN)}},
        "else": {"properties": {**_encoding_is(ENCODING), **refs}},
    }


def _sorted(kind: registry.Registry) -> list[registry.Description]:
    return [kind.describe(name) for name in kind.names()]


def _encoding_is(schema: dict[str, Any]) -> dict[str, Any]:
    return {"model": {"properties": {"encoding": schema}}}


def _encoding_schema() -> dict[str, Any]:
    every = _sorted(registry.encodings)
    short = [
        one.name for one in every if all(option.default is not registry.REQUIRED for option in one.options)
    ]
    members: list[dict[str, Any]] = [
        {"enum": short, "description": "An encoding with its options as they are."},
        {"type": "array", "items": ENCODING, "minItems": 1, "description": "Several, combined."},
    ]
    for one in every:
        schema = config_class(NamedConfig, one).model_json_schema() | {"title": one.name}
        schema["properties"] |= dict.fromkeys(one.wrapping, ENCODING)
        members.append(schema)
    return {"anyOf": members}
