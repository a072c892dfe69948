"""The JSON Schema accepts and rejects the same recipes as the reader."""

import copy
from pathlib import Path

import pytest
import yaml

from zoo.recipe import json_schema, resolve
from zoo.recipe.tree import read_file
from zoo.registry import encodings

RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.yaml"))


@pytest.fixture(scope="module")
def validator():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


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


def test_recipes_bases_and_resolved_recipes_are_valid(validator, good):
    assert len(RECIPES) >= 8
    assert not [path for path in RECIPES if not validator.is_valid(read_file(path).values)]
    validator.validate(resolve(good).as_dict())
    validator.validate(
        {"base": "base/wikitext2.yaml", "data": {"batch_size": 4}, "model": {"encoding": "rope"}}
    )


REJECTED = (
    "model.encoding=alibbi", "model.encoding={name: alibi, slops: official}", "model.num_heads=x",
    "trainer.logger=true", "trainer.max_stps=3", "sed=1", "data.batch_size=0", "task=max_indx",
)  # fmt: skip


def test_settings_that_the_reader_rejects_are_invalid(validator, good, problems):
    for setting in REJECTED:
        changed = copy.deepcopy(good)
        key, _, value = setting.partition("=")
        *owners, last = key.split(".")
        section = changed
        for owner in owners:
            section = section[owner]
        section[last] = yaml.safe_load(value)
        assert problems(resolve, changed) and not validator.is_valid(changed), setting


def test_an_unknown_encoding_is_valid_only_with_plugins(validator, good):
    plugins = {"plugins": ["mine.py"]}
    for encoding in ("mine", {"name": "mine", "reach": 2}, ["rope", {"name": "mine"}]):
        good["model"]["encoding"] = encoding
        assert not validator.is_valid(good) and not validator.is_valid({**good, "plugins": []}), encoding
        assert validator.is_valid(good | plugins), encoding
    for encoding in (3, {"slopes": "official"}, [], [4]):  # none of these names an encoding
        good["model"]["encoding"] = encoding
        assert not validator.is_valid(good | plugins), encoding
