"""The recipe as JSON Schema, so that editors complete and check it while it is written."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from zoo import registry
from zoo.recipe.fields import Section
from zoo.recipe.schema import Recipe
from zoo.recipe.sections import BASES, NAMES, NamedConfig, config_class, described, section_model
from zoo.recipe.trainer import PRECISION_ALIASES, lightning_class

ENCODING = {"$ref": "#/$defs/encoding"}
# Text, or a mapping with a name: which encodings a plugin brings, a schema cannot know.
_ANY_NAME = [{"type": "string"}, {"type": "object", "required": ["name"]}]
ENCODING_OR_OWN = {
    "anyOf": [ENCODING, *_ANY_NAME, {"type": "array", "items": {"anyOf": _ANY_NAME}, "minItems": 1}]
}
# Over a base, a file may give other keys of a section and not its name.
SECTION_OR_OWN = {"anyOf": [{"type": "string"}, {"type": "object"}]}


class _OfFile(GenerateJsonSchema):
    """No key is required: a file may take keys from its base, and a base is not a complete recipe."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        made = super().default_schema(schema)
        return {key: value for key, value in made.items() if (key, value) != ("default", None)}


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a recipe file: the keys, every known encoding, Lightning's flags.

    `zoo show` reports missing keys.
    """
    schema = _schema(Recipe)
    properties, definitions = schema["properties"], schema["$defs"]
    definitions["EvaluateConfig"] = _schema(section_model("evaluate", {}))
    del definitions["EvaluateConfig"]["$defs"]  # those of the recipe
    definitions["TrainerConfig"] = _schema(lightning_class())
    definitions["TrainerConfig"]["properties"]["precision"]["enum"] += PRECISION_ALIASES
    named = ("data", "task", "optimizer")
    for section in named:
        kind, *others = NAMES[section].values()
        more = [other.describe(name) for other in others for name in other.names()]
        members = [_schema(config_class(BASES[section], one, *more)) for one in described(kind)]
        definitions[section] = {"anyOf": members}
        properties[section] = {"description": properties[section]["description"]}
    for optimizer in definitions["optimizer"]["anyOf"]:
        optimizer["properties"]["schedule"]["enum"] = registry.schedules.names()
    definitions["task"]["anyOf"].append({"enum": registry.tasks.names()})
    definitions["encoding"] = _encoding_schema()
    base = {"type": "string", "description": "A recipe file that this one changes; relative to this file."}
    refs = {section: {"$ref": f"#/$defs/{section}"} for section in named}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "properties": {"name": properties.pop("name"), "base": base, **properties},
        "if": {"properties": {"plugins": {"type": "array", "minItems": 1}}, "required": ["plugins"]},
        "then": {"properties": {**_encoding_is(ENCODING_OR_OWN), **dict.fromkeys(named, SECTION_OR_OWN)}},
        "else": {"properties": {**_encoding_is(ENCODING), **refs}},
    }


def _schema(section: type[Section]) -> dict[str, Any]:
    return section.model_json_schema(schema_generator=_OfFile)


def _encoding_is(schema: dict[str, Any]) -> dict[str, Any]:
    return {"model": {"properties": {"encoding": schema}}}


def _encoding_schema() -> dict[str, Any]:
    every = described(registry.encodings)
    short = [one.name for one in every if not any(o.default is registry.REQUIRED for o in one.options)]
    members: list[dict[str, Any]] = [
        {"enum": short, "description": "An encoding with its options as they are."},
        {"type": "array", "items": ENCODING, "minItems": 1, "description": "Several, combined."},
    ]
    for one in every:
        schema = config_class(NamedConfig, one).model_json_schema() | {"title": one.name}
        schema["properties"] |= dict.fromkeys(one.wrapping, ENCODING)
        members.append(schema)
    return {"anyOf": members}
