"""The recipe as JSON Schema, so that editors complete and check it while it is written."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from zoo import registry
from zoo.recipe.catalogue import TASKS
from zoo.recipe.options import OWNED, strict_type, trainer_options
from zoo.recipe.schema import PRECISION_ALIASES, Recipe, TrainerConfig

ENCODING = {"$ref": "#/$defs/encoding"}
# Text, or a mapping with a name: which encodings a plugin brings, a schema cannot know.
_ANY_NAME = [{"type": "string"}, {"type": "object", "required": ["name"]}]
ENCODING_OR_OWN = {
    "anyOf": [ENCODING, *_ANY_NAME, {"type": "array", "items": {"anyOf": _ANY_NAME}, "minItems": 1}]
}


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a recipe file: the keys, every known encoding, Lightning's flags.

    No key of a section is required in it: a file may leave to its base what it does not say itself, and a
    base is no whole recipe. What is missing is told by `zoo show`.
    """
    schema = Recipe.model_json_schema()
    definitions = schema["$defs"]
    for owner in (schema, *definitions.values()):
        owner.pop("required", None)
        for field in owner.get("properties", {}).values():
            if field.get("default", ...) is None:
                del field["default"]

    properties = schema["properties"]
    for key in ("data", "task"):
        # Without its discriminator: over a base, a file may give other keys of `data` and not its name.
        properties[key]["anyOf"] = properties[key].pop("oneOf")
        properties[key].pop("discriminator", None)
    properties["task"]["anyOf"].append({"enum": [*TASKS]})
    trainer = definitions["TrainerConfig"]["properties"]
    trainer["precision"]["enum"] += PRECISION_ALIASES
    definitions["encoding"] = _encoding_schema()
    with_plugins = {"properties": {"plugins": {"type": "array", "minItems": 1}}, "required": ["plugins"]}
    schema |= {"if": with_plugins, "then": _encoding_is(ENCODING_OR_OWN), "else": _encoding_is(ENCODING)}
    for key, option in trainer_options().items():
        if key not in OWNED and key not in TrainerConfig.model_fields:
            trainer[key] = _option_schema(option.annotation)
    definitions["TrainerConfig"]["additionalProperties"] = False
    base = {"type": "string", "description": "A recipe file that this one changes; relative to this file."}
    schema["properties"] = {"name": properties.pop("name"), "base": base, **properties}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _encoding_is(schema: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {"model": {"properties": {"encoding": schema}}}}


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
