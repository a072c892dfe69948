"""Every encoding with every seed, each with its own name; all faults of the flags are reported at once."""

import re

import pytest

from zoo import registry
from zoo.errors import InputError
from zoo.recipe import read_recipe, to_yaml_line
from zoo.recipe.tree import read_value
from zoo.sweep.flags import named, read_encodings, read_grid


def test_every_encoding_meets_every_seed_and_nothing_else_differs(planned, tiny):
    runs = planned("t5,{name: rope, partial: 0.5},[rope, t5]", (3, 1))
    names = ("t5", "rope-partial-0.5", "rope-t5")
    assert [run.name for run in runs] == [f"{name}_tiny_s{seed}" for seed in (3, 1) for name in names]
    plain = read_recipe(tiny, ["model.encoding=none"]).as_dict()
    for run in runs:
        recipe = run.recipe.as_dict()
        assert (recipe["name"], recipe["seed"]) == (run.name, run.seed) and run.folder.name == run.name
        encoding = recipe["model"].pop("encoding")
        spec = to_yaml_line(
            {"t5": "t5", names[1]: {"name": "rope", "partial": 0.5}}.get(run.encoding, ["rope", "t5"])
        )
        assert encoding == read_recipe(tiny, [f"model.encoding={spec}"]).as_dict()["model"]["encoding"]
        model = {key: value for key, value in plain["model"].items() if key != "encoding"}
        assert recipe == plain | {"name": run.name, "seed": run.seed, "model": model}


def test_a_recipe_with_an_encoding_gives_the_runs_of_one_without(planned, tiny):
    own = tiny.with_name("alibi_tiny.yaml")
    own.write_text("base: tiny.yaml\nmodel: {encoding: {name: alibi, slopes: geometric}}\n")
    bare, other = (planned("alibi,rope", file=file) for file in (tiny, own))
    assert [run.recipe for run in bare] == [run.recipe for run in other]


def test_names_are_different_and_safe(planned, forgetful_registry):
    @registry.encodings.register("rope-t5")
    class Near(registry.encodings.load("none")):
        pass

    long = [1.0 + i / 7 for i in range(100)]
    factors = {"name": "rope", "scaling": "longrope", "factor": 4.0}
    specs = [
        "rope", ["rope", "t5"], "rope-t5", {"name": "rope", "base": 500.0}, {"name": "rope", "base": 500000},
        {"name": "randomized", "of": "rope", "max_position": 64},
        {**factors, "long_factor": long}, {**factors, "long_factor": [*long[:-1], 9.0]},
        ["rope", "t5", "alibi", "fire"] * 20,
    ]  # fmt: skip
    names = named(specs)
    assert [*names.values()] == specs
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) and len(name) <= 100 for name in names)
    assert [run.name for run in planned("rope,{name: rope},alibi,rope", (0, 0))] == [
        "rope_tiny_s0",
        "alibi_tiny_s0",
    ]


def test_each_problem_is_reported_once_with_its_flag(planned):
    def reported(*flags, **more):
        with pytest.raises(InputError) as caught:
            planned(*flags, **more)
        return "\n".join(sorted(str(caught.value).splitlines()))

    found = reported("alibi,rope", (0, 2**32), ("data.batch_size=0", "trainer.x=1"))
    at, size, key = found.splitlines()
    assert at.startswith(f"--seeds {2**32}: seed: ") or size.startswith("--set data.batch_size=0: ")
    assert key.startswith("--set trainer.x=1: trainer.x: unknown key")
    found = reported("alibbi,rope,{name: rope, partial: x},fox")
    assert "--encodings alibbi: model.encoding: no encoding 'alibbi'; did you mean 'alibi'?" in found
    assert "--encodings {name: rope, partial: x}: model.encoding.partial: must be" in found
    assert "--encodings fox: model.encoding: encoding 'fox' is not for an encoder" in found
    assert re.match("--encodings .*rope rotates pairs", reported("alibi,{name: rope, partial: 0.01}", (0, 1)))
    for wrong in ("5", "true", "''", "[]", "{}"):
        assert (
            reported(f"alibi,{wrong}")
            == f"--encodings alibi,{wrong}: no encoding: {wrong}; `zoo list encodings` has all"
        )
    for key in ("seed=1", "model.encoding.base=3", "name=a"):
        assert reported("alibi", (0,), [key]).startswith(f"--set {key}: ")


@pytest.mark.parametrize("grid, sets, message", [
    ("seed=1,2", (), "--grid seed: seed: the sweep sets it"),
    ("optimizer.lrr=1,2", (), "--grid optimizer.lrr: optimizer.lrr: unknown key; did you mean 'lr'"),
    ("optimizer.lr=1,2", ["logging=[tensorboard]"], "logging: --grid reads the validation loss"),
    ("optimizer.lr=1,2", ["trainer.limit_val_batches=0"], "limit_val_batches: --grid chooses"),
    ("optimizer.lr", (), "not a key with several values"),
    ("optimizer.lr=1e-3", (), "not a key with several values"),
    ("=1,2", (), "not a key with several values"),
    ("optimizer.lr=[1", (), "not YAML"),
])  # fmt: skip
def test_a_grid_that_cannot_be_tried_is_refused_before_any_run(planned, grid, sets, message):
    with pytest.raises(InputError) as caught:
        planned("alibi", sets=sets, grid=[grid])
    assert message in str(caught.value)


def test_every_combination_of_every_encoding_and_seed_is_a_run(planned):
    grid = ["optimizer.lr=0.001,0.003", "optimizer.warmup_steps=1,2"]
    runs = planned("alibi,{name: rope, partial: 0.5}", (0, 1), grid=grid)
    cells = {
        (run.encoding, run.seed, run.recipe.optimizer.lr, run.recipe.optimizer.warmup_steps) for run in runs
    }
    assert len(cells) == len({run.folder for run in runs}) == len(runs) == 2 * 2 * 4
    assert runs[0].name == "alibi_tiny_lr-0.001_warmup_steps-1_s0"
    assert {run.recipe.evaluate.split for run in runs} == {"test"}
    assert read_grid(["optimizer.lr=1e-3,3e-3"]) == {"optimizer.lr": [0.001, 0.003]}


@pytest.mark.parametrize("text", ["a,,b", "[rope"])
def test_a_text_that_is_not_a_list_of_encodings_is_reported(text):
    with pytest.raises(InputError, match="--encodings"):
        read_encodings(text)


def test_a_value_is_written_in_one_line_and_read_back():
    for value in (
        "rope", "on", "1e3", "null", "a, b", "", True, 3, 1e-5, {"name": "rope", "partial": 0.25},
        ["rope", {"name": "fire", "of": ["t5", {"name": "it's: #1"}]}], {"factors": [0.1 + 0.2] * 99},
    ):  # fmt: skip
        line = to_yaml_line(value)
        assert "\n" not in line and read_value(line, "") == value
        assert read_encodings(to_yaml_line([value, "rope"])[1:-1]) == [value, "rope"]
