"""`zoo export --release`: models under names that say what they are, with an index."""

import csv
import hashlib
import json
import re

import pytest
import torch
from huggingface_hub import ModelCard

import zoo
from zoo.cli import main
from zoo.pretrained.export import export
from zoo.pretrained.model_card import model_name
from zoo.reports.fit import fit

LLAMA = ("model.norm=rmsnorm", "model.activation=swiglu")


def test_models_are_released_with_digests_and_imported_by_name(checkpoint, here, capsys):
    made = [checkpoint(*LLAMA, f"model.encoding={name}", folder=name) for name in ("rope", "none")]
    places = [place for place, _ in made]
    out = here / "models"
    assert main(["export", *map(str, places), "--out", str(out)]) == 2
    assert "--release" in capsys.readouterr().err and not out.exists()
    for place in places:  # the second is added to the first
        assert main(["export", str(place), "--release", "--out", str(out)]) == 0
    index = json.loads((out / "index.json").read_text())
    assert [one["name"] for one in index] == [
        "zoo-none-5-sample-448-L16-seed0",
        "zoo-rope-5-sample-448-L16-seed0",
    ]
    for one in index:
        weights = (out / one["name"] / "model.safetensors").read_bytes()
        assert one["sha256"] == hashlib.sha256(weights).hexdigest() and one["bytes"] == len(weights)
    capsys.readouterr()
    assert main(["export", str(places[0]), str(places[0]), "--release", "--out", str(out)]) == 2
    assert "is there already" in capsys.readouterr().err
    tokens = torch.arange(20)[None]
    for (_, task), one in zip(made, reversed(index), strict=True):  # Llama, and the zoo's own
        assert main(["import", str(out / one["name"]), "--name", one["name"]]) == 0
        again = zoo.load(here / "runs" / one["name"])
        assert (again(tokens) - task.model(tokens)).abs().max() < 1e-5


def test_two_models_of_one_name_are_refused_before_the_first_is_written(checkpoint, tmp_path, capsys):
    out = tmp_path / "models"
    places = [str(checkpoint(f"name={run}", folder=str(number))[0]) for number, run in enumerate("aab")]
    assert main(["export", *places, "--release", "--out", str(out)]) == 2
    assert "would be the name of 2 models" in capsys.readouterr().err and not out.exists()
    assert main(["export", *places[1:], "--release", "--format", "safetensors", "--out", str(out)]) == 0
    (loaded,) = re.findall(r'zoo\.load\("(.+)"\)', capsys.readouterr().out)
    assert zoo.load(loaded)(torch.arange(9)[None]).shape[:2] == (1, 9)
    assert [one.name[-7:] for one in sorted(out.glob("zoo-*"))] == ["seed0-a", "seed0-b"]


def test_the_name_has_options_and_the_last_part_of_a_corpus():
    nape = {"name": "heads", "of": [{"name": "alibi"}, {"name": "none"}]}
    recipe = {
        "model": {"encoding": [nape, {"name": "entmax"}]},
        "data": {"name": "hub", "id": "HuggingFaceFW/fineweb-edu", "sequence_length": 512}, "seed": 3,
    }  # fmt: skip
    card = {"parameters": {"total": 124_439_808}, "tokens_seen": 8_912_896_000}
    assert model_name(recipe, card) == "zoo-heads-alibi-none-entmax-124M-fineweb-edu-8.91G-L512-seed3"
    card["imported"] = {"from": "openai-community/gpt2"}  # of which the recipe has the evaluation alone
    assert model_name(recipe, card) == "zoo-heads-alibi-none-entmax-124M-gpt2"


@pytest.mark.slow
@pytest.mark.usefixtures("drawn")
def test_an_exported_model_carries_its_recipe_and_its_results(here, recipe):
    run = fit(recipe("text", "evaluate.lengths=[16,32]", *LLAMA, "model.encoding=rope"))
    export(run, here / "out", "hf")
    assert (here / "out" / "zoo_recipe.yaml").read_text() == (run / "recipe.yaml").read_text()
    rows = json.loads((run / "evaluation" / "lengths.json").read_text())
    with (here / "out" / "lengths.csv").open() as file:
        assert [int(row["length"]) for row in csv.DictReader(file)] == [16, 32]
    results = ModelCard.load(here / "out" / "README.md").data.eval_results
    assert [one.metric_value for one in results] == [row["bits_per_byte"] for row in rows]
    assert {one.metric_type for one in results} == {"bits_per_byte"}
