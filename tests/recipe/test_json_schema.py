"""The JSON Schema takes what the reader takes."""

import json
from pathlib import Path

import pytest
import yaml

from zoo.recipe import json_schema, resolve
from zoo.recipe.yaml_file import read_file
from zoo.registry import encodings

RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.yaml"))


@pytest.fixture(scope="module")
def validator():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_it_is_plain_json_and_its_references_lead_somewhere():
    schema = json_schema()
    text = json.dumps(schema)
    assert json.loads(text) == schema
    for part in text.split('"$ref": "#/$defs/')[1:]:
        assert part.split('"')[0] in schema["$defs"]


def test_every_encoding_and_option_is_in_it():
    members = {
        member["properties"]["name"]["const"]: member["properties"]
        for member in json_schema()["$defs"]["encoding"]["anyOf"]
        if "properties" in member
    }
    assert sorted(members) == encodings.names()
    for name, properties in members.items():
        assert set(properties) == {
            "name",
            *(option.name for option in encodings.describe(name).options),
        }


def test_every_key_has_a_description():
    schema = json_schema()
    sections = [
        schema,
        *(s for name, s in schema["$defs"].items() if "properties" in s and name != "TrainerConfig"),
    ]
    for section in sections:
        for key, field in section["properties"].items():
            target = schema["$defs"].get(field.get("$ref", "").rsplit("/", 1)[-1], {})
            assert field.get("description") or target.get("description"), key


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_and_base_fits(validator, path):
    validator.validate(read_file(path).plain())


def test_resolved_recipes_fit(validator, good):
    validator.validate(resolve(good).as_dict())


@pytest.mark.parametrize("setting", [
    "model.encoding=alibbi", "model.encoding={name: alibi, slops: official}", "model.num_heads=x",
    "trainer.logger=true", "trainer.max_stps=3", "sed=1", "data.batch_size=0", "task=max_indx",
])  # fmt: skip
def test_what_the_reader_refuses_it_refuses(validator, good, problems, setting):
    key, _, value = setting.partition("=")
    *owners, last = key.split(".")
    section = good
    for owner in owners:
        section = section[owner]
    section[last] = yaml.safe_load(value)
    assert problems(resolve, good)
    assert not validator.is_valid(good)


@pytest.mark.parametrize("encoding", ["mine", {"name": "mine", "reach": 2}, ["rope", {"name": "mine"}]])
def test_the_encoding_of_a_plugin_fits_where_there_are_plugins(validator, good, encoding):
    good["model"]["encoding"] = encoding
    for plugins in ({}, {"plugins": []}):
        assert not validator.is_valid({**good, **plugins})
    validator.validate({**good, "plugins": ["mine.py"]})


@pytest.mark.parametrize("encoding", [3, {"slopes": "official"}, [], [4]])
def test_what_names_no_encoding_fits_nowhere(validator, good, encoding):
    good["model"]["encoding"] = encoding
    assert not validator.is_valid({**good, "plugins": ["mine.py"]})


def test_a_recipe_over_a_base_may_be_partial(validator):
    validator.validate(
        {"base": "base/wikitext2.yaml", "data": {"batch_size": 4}, "model": {"encoding": "rope"}}
    )
