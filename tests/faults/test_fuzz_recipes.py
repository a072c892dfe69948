"""Recipes with random faults: each is refused with the place of the fault, or is a sound recipe."""

import re
import shutil
from pathlib import Path

import pytest
from fuzzing import FACTOR, SEED
from limits import at_most
from recipe_mutations import case

from zoo.errors import InputError
from zoo.recipe import dump, read_recipe, resolve

RECIPES = Path(__file__).parents[2] / "recipes"
MOST_SECONDS = 30  # for one recipe, which takes milliseconds
LONGEST = 60_000  # characters of a message of a hundred problems


@pytest.fixture(scope="module")
def files():
    return {str(file.relative_to(RECIPES)): file.read_bytes() for file in sorted(RECIPES.rglob("*.yaml"))}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of recipes to write into, in which each finds its base."""
    shutil.copytree(RECIPES, tmp_path / "recipes")
    monkeypatch.chdir(tmp_path)
    return Path("recipes")


def assert_well_reported(error):
    text = str(error)
    assert text and len(text) <= LONGEST, len(text)
    assert all(one.isprintable() or one == "\n" for one in text), repr(text)
    for problem in error.problems:
        where = problem.where
        assert where, problem
        if where.startswith("--set "):
            continue
        file, _, line = where.rpartition(":")
        if not line.isdecimal():
            file, line = where, "1"
        lines = len(re.findall(b"[\r\n]", Path(file).read_bytes())) + 1
        assert 1 <= int(line) <= lines, problem


def assert_sound(recipe, path):
    assert resolve(recipe.as_dict()) == recipe
    path.write_text(dump(recipe), encoding="utf-8")
    assert read_recipe(path) == recipe


@pytest.mark.slow
def test_a_mutated_recipe_is_refused_with_its_place_or_sound(files, folder):
    accepted = 0
    for number in range(1000 * FACTOR):
        name, raw, sets = case(f"{SEED} {number}", files)
        (folder / name).write_bytes(raw)
        try:
            with at_most(MOST_SECONDS):
                recipe = read_recipe(folder / name, sets)
                assert_sound(recipe, folder / "again.yaml")
                accepted += 1
        except InputError as error:
            assert_well_reported(error)
        except BaseException as error:
            error.add_note(f"seed {SEED}, case {number}: {name} {sets}\n{raw[:2000]!r}")
            raise
        finally:
            (folder / name).write_bytes(files[name])
    print(f"seed {SEED}: {accepted} of {number + 1} accepted")
    assert accepted >= 50 * FACTOR
