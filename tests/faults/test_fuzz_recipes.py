"""Ten thousand recipes made wrong at random: each is a sound recipe, or told with its place; nothing else."""

import re
import shutil
from pathlib import Path

import pytest
from limits import at_most
from recipe_mutations import case

from zoo.errors import InputError
from zoo.recipe import dump, read_recipe, resolve

RECIPES = Path(__file__).parents[2] / "recipes"
MOST_SECONDS = 5  # for one recipe, on a machine with other work; it takes milliseconds
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


def must_be_told_well(error):
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


def must_be_sound(recipe, path):
    assert resolve(recipe.as_dict()) == recipe
    path.write_text(dump(recipe), encoding="utf-8")
    assert read_recipe(path) == recipe


def tried(numbers, files, folder):
    """How many of these cases were accepted; each must have been told well, or be sound."""
    accepted = 0
    for number in numbers:
        name, raw, sets = case(number, files)
        (folder / name).write_bytes(raw)
        try:
            with at_most(MOST_SECONDS):
                recipe = read_recipe(folder / name, sets)
                must_be_sound(recipe, folder / "again.yaml")
                accepted += 1
        except InputError as error:
            must_be_told_well(error)
        except BaseException as error:
            error.add_note(f"case {number}: {name} {sets}\n{raw[:2000]!r}")
            raise
        finally:
            (folder / name).write_bytes(files[name])
    return accepted


def test_five_hundred_mutated_recipes(files, folder):
    assert tried(range(500), files, folder) >= 50  # so that soundness is tried too


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_ten_thousand_mutated_recipes(files, folder, part):
    assert tried(range(500 + part, 10_500, 4), files, folder) >= 250
