"""The matrix: every encoding with every seed, each with its own name; all faults are reported at once."""

import itertools
import re

import pytest

from zoo import registry
from zoo.errors import InputError
from zoo.recipe import read_recipe, to_yaml_line
from zoo.recipe.encoding import check_encoding
from zoo.recipe.tree import read_value
from zoo.sweep.plan import plan, read_encodings, slugs


def reported(tiny, encodings, seeds=(0, 1), sets=()):
    with pytest.raises(InputError) as caught:
        plan(tiny, read_encodings(encodings), seeds, sets, tiny.parent / "runs")
    return str(caught.value).splitlines()


def runs_of(file, encodings, seeds=(0,), sets=()):
    return plan(file, read_encodings(encodings), seeds, sets, file.parent / "runs")[1]


def resolved(spec):
    value, faults = check_encoding(spec, ())
    assert not faults
    return value


def test_every_encoding_meets_every_seed_and_nothing_else_differs(tiny):
    runs = runs_of(tiny, "alibi,{name: rope, partial: 0.5},[rope, t5]", (3, 1))
    cells = [(run.seed, run.label) for run in runs]
    assert cells == list(itertools.product((3, 1), ("alibi", "rope", "rope+t5")))
    plain = read_recipe(tiny, ["model.encoding=none"]).as_dict()
    for run in runs:
        recipe = run.recipe.as_dict()
        assert (recipe.pop("name"), recipe.pop("seed")) == (
            run.name,
            run.seed,
        ) and run.folder.name == run.name
        encoding = recipe["model"].pop("encoding")
        assert recipe == {
            **{key: value for key, value in plain.items() if key not in ("name", "seed")},
            "model": {key: value for key, value in plain["model"].items() if key != "encoding"},
        }
        assert (
            encoding
            == {
                "alibi": resolved("alibi"),
                "rope": resolved({"name": "rope", "partial": 0.5}),
                "rope+t5": resolved(["rope", "t5"]),
            }[run.label]
        )


def test_a_recipe_with_an_encoding_gives_the_runs_of_one_without(tiny):
    own = tiny.with_name("alibi_tiny.yaml")
    own.write_text("base: tiny.yaml\nmodel: {encoding: {name: alibi, slopes: geometric}}\n")
    bare, other = (runs_of(file, "alibi,rope") for file in (tiny, own))
    assert [run.recipe for run in bare] == [run.recipe for run in other]


def test_the_same_encoding_given_twice_is_one(tiny):
    runs = runs_of(tiny, "rope,{name: rope},alibi,rope", (0, 0))
    assert [run.name for run in runs] == ["rope_tiny_s0", "alibi_tiny_s0"]


def test_names_are_different_and_safe(forgetful_registry):
    @registry.encodings.register("rope-t5")
    class Near(registry.encodings.load("none")):
        pass

    long = [1.0 + i / 7 for i in range(100)]
    factors = {"name": "rope", "scaling": "longrope", "factor": 4.0}
    specs = [
        resolved(spec)
        for spec in (
            "rope", ["rope", "t5"], "rope-t5", {"name": "rope", "partial": 0.25}, 
            {"name": "rope", "base": 500.0},
            {"name": "rope", "base": 500000}, {"name": "randomized", "of": "rope", "max_position": 64},
            {"name": "randomized", "of": "alibi", "max_position": 64},
            {**factors, "long_factor": long}, {**factors, "long_factor": [*long[:-1], 9.0]},
            ["rope", "t5", "alibi", "fire"] * 20,
        )
    ]  # fmt: skip
    names = slugs(specs)
    assert len({name.casefold() for name in names}) == len(specs)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) and len(name) <= 100
    # The name of one does not depend on which others there are, unless it is theirs too.
    alone = [slugs([spec])[0] for spec in specs]
    assert [n for n, a in zip(names, alone, strict=True) if n != a] == [names[1], names[2]]


def test_one_problem_is_reported_once_however_many_runs_have_it(tiny):
    for encodings, sets, parts in (
        ("alibbi,rope,{name: rope, partial: x}", (), (
            "--encodings alibbi: model.encoding: no encoding 'alibbi'; did you mean 'alibi'?",
            "--encodings {name: rope, partial: x}: model.encoding.partial: must be",
        )),
        ("alibi,rope", ("data.batch_size=0", "trainer.x=1"), (
            "--set data.batch_size=0: data.batch_size: must be greater than 0, got 0",
            "--set trainer.x=1: trainer.x: unknown key",
        )),
        ("rope,fox", (), ("--encodings fox: model.encoding: encoding 'fox' is not for an encoder",)),
    ):  # fmt: skip
        lines = reported(tiny, encodings, sets=sets)
        assert len(lines) == len(set(lines)) == len(parts)
        assert all(part in "\n".join(lines) for part in parts)


def test_a_problem_of_one_seed_names_it(tiny):
    (line,) = reported(tiny, "alibi,rope", seeds=(0, 2**32))
    assert line.startswith(f"--seeds {2**32}: seed: ")


@pytest.mark.parametrize("key", ["seed=1", "model.encoding.base=3"])
def test_a_key_of_the_sweep_cannot_be_set(tiny, key):
    (line,) = reported(tiny, "alibi", sets=[key])
    assert line.startswith(f"--set {key}: ")


@pytest.mark.parametrize("text", ["a,,b", "[rope"])
def test_a_text_that_is_not_a_list_of_encodings_is_reported(text):
    with pytest.raises(InputError, match="--encodings"):
        read_encodings(text)


def test_a_value_is_written_in_one_line_and_read_back():
    for value in (
        "rope", "on", "1e3", "null", "a, b", "", None, True, 3, 1e-5, {"name": "rope", "partial": 0.25},
        ["rope", {"name": "fire", "of": ["t5", {"name": "it's: #1"}]}], {"factors": [0.1 + 0.2] * 99},
    ):  # fmt: skip
        line = to_yaml_line(value)
        assert "\n" not in line and read_value(line, "") == value
        assert read_encodings(to_yaml_line([value, "rope"])[1:-1]) == [value, "rope"]


def test_an_option_that_an_encoding_refuses_is_reported_before_anything_starts(tiny, tmp_path):
    with pytest.raises(InputError, match=r"rope rotates pairs") as caught:
        plan(tiny, ["alibi", {"name": "rope", "partial": 0.01}], [0, 1], [], tmp_path)
    assert "seed" not in str(caught.value)
