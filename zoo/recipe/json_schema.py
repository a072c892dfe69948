"""The recipe as JSON Schema, so that editors complete and check it while it is written."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from zoo import registry
from zoo.field_types import strict_type
from zoo.recipe.options import OWNED, trainer_options
from zoo.recipe.schema import PRECISION_ALIASES, Recipe, TrainerConfig
from zoo.recipe.section_bases import DataConfig, OptimizerConfig, TaskConfig
from zoo.recipe.sections import config_class

ENCODING = {"$ref": "#/$defs/encoding"}
# Text, or a mapping with a name: which encodings a plugin brings, a schema cannot know.
_ANY_NAME = [{"type": "string"}, {"type": "object", "required": ["name"]}]
ENCODING_OR_OWN = {
    "anyOf": [ENCODING, *_ANY_NAME, {"type": "array", "items": {"anyOf": _ANY_NAME}, "minItems": 1}]
}


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a recipe file: the keys, every known encoding, Lightning's flags.

    No key of a section is required in it: a file may leave to its base what it does not say itself, and a
    base is not a complete recipe. `zoo show` reports what is missing.
    """
    schema = Recipe.model_json_schema()
    definitions, properties = schema["$defs"], schema["properties"]
    schedules = registry.schedules.all().values()
    named = {
        "data": [config_class(DataConfig, one) for one in registry.datasets.all().values()],
        "task": [config_class(TaskConfig, one) for one in registry.tasks.all().values()],
        "optimizer": [
            config_class(OptimizerConfig, one, *schedules) for one in registry.optimizers.all().values()
        ],
    }
    for key, several in named.items():
        members = [one.model_json_schema() for one in several]
        for member in members:
            definitions[member["title"]] = member
        definitions[key] = {"anyOf": [{"$ref": f"#/$defs/{member['title']}"} for member in members]}
        properties[key] = {"description": properties[key].get("description", "")}
    for member in definitions["optimizer"]["anyOf"]:
        own = definitions[member["$ref"].rsplit("/", 1)[-1]]["properties"]
        own["schedule"] |= {"enum": registry.schedules.names()}
    definitions["task"]["anyOf"].append({"enum": registry.tasks.names()})
    for base in (DataConfig, TaskConfig, OptimizerConfig):
        definitions.pop(base.__name__, None)
    for owner in (schema, *definitions.values()):
        owner.pop("required", None)
        for field in owner.get("properties", {}).values():
            if field.get("default", ...) is None:
                del field["default"]

    trainer = definitions["TrainerConfig"]["properties"]
    trainer["precision"]["enum"] += PRECISION_ALIASES
    definitions["encoding"] = _encoding_schema()
    with_plugins = {"properties": {"plugins": {"type": "array", "minItems": 1}}, "required": ["plugins"]}
    # Over a base, a file may give other keys of a section and not its name.
    own = {"anyOf": [{"type": "string"}, {"type": "object"}]}
    plain = {key: {"$ref": f"#/$defs/{key}"} for key in named}
    schema |= {
        "if": with_plugins,
        "then": {"properties": {**_encoding_is(ENCODING_OR_OWN), **dict.fromkeys(named, own)}},
        "else": {"properties": {**_encoding_is(ENCODING), **plain}},
    }
    for key, option in trainer_options().items():
        if key not in OWNED and key not in TrainerConfig.model_fields:
            trainer[key] = _option_schema(option.annotation)
    definitions["TrainerConfig"]["additionalProperties"] = False
    base = {"type": "string", "description": "A recipe file that this one changes; relative to this file."}
    schema["properties"] = {"name": properties.pop("name"), "base": base, **properties}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _encoding_is(schema: dict[str, Any]) -> dict[str, Any]:
    return {"model": {"properties": {"encoding": schema}}}


def _encoding_schema() -> dict[str, Any]:
    about = [registry.encodings.describe(name) for name in registry.encodings.names()]
    short = [
        one.name for one in about if not any(option.default is registry.REQUIRED for option in one.options)
    ]
    members: list[dict[str, Any]] = [
        {"enum": short, "description": "An encoding with its options as they are."}
    ]
    for one in about:
        options = {}
        for option in one.options:
            options[option.name] = _option_schema(option.annotation)
            if option.default is None or isinstance(option.default, str | int | float | bool):
                options[option.name]["default"] = option.default
        members.append(
            {
                "type": "object",
                "title": one.name,
                "description": one.summary,
                "properties": {"name": {"const": one.name}, **options},
                "required": ["name", *(o.name for o in one.options if o.default is registry.REQUIRED)],
                "additionalProperties": False,
            }
        )
    members.append({"type": "array", "items": ENCODING, "minItems": 1, "description": "Several, combined."})
    return {"anyOf": members}


def _option_schema(annotation: Any) -> dict[str, Any]:
    if registry.holds_wrapped(annotation):
        return dict(ENCODING)
    return TypeAdapter(strict_type(annotation)).json_schema()
