"""A run that starts from the weights of another."""

import hashlib
import json

import pytest
import torch

from zoo import cli
from zoo.errors import InputError
from zoo.recipe import resolve
from zoo.reports.fit import fit
from zoo.runs.folder import write_recipe
from zoo.runs.init_from import init_weights, read_init_from
from zoo.tasks import build_task
from zoo.training import fit as training

pytestmark = pytest.mark.usefixtures("unmeasured")


def weights(folder, file="last.ckpt"):
    return torch.load(folder / "checkpoints" / file, weights_only=True)["state_dict"]


def card(folder):
    return json.loads((folder / "card.json").read_text())


def fresh(recipe, vocab_size=20):
    return build_task(recipe, vocab_size)


# With this learning rate the last weights of a run are its first ones.
STILL = ["optimizer.lr=1e-30", "optimizer.weight_decay=0", "trainer.max_steps=1"]


@pytest.mark.parametrize("kind, checkpoint", [("text", ""), ("max_index", "/checkpoints/best.ckpt")])
def test_a_run_begins_with_the_weights_of_another(here, recipe, kind, checkpoint):
    first = fit(recipe(kind, "name=first"))
    second = fit(recipe(kind, "name=second", f"init_from=runs/first{checkpoint}", *STILL, "seed=5"))
    there = weights(first, "best.ckpt" if checkpoint else "last.ckpt")
    here_ = weights(second)
    assert there.keys() == here_.keys()
    assert all(torch.equal(there[name], here_[name]) for name in there)
    plain = weights(fit(recipe(kind, "name=third", *STILL, "seed=5")))
    assert not all(torch.equal(plain[name], here_[name]) for name in plain)


def test_the_card_says_where_it_started(here, recipe, capsys):
    first = fit(recipe("text", "name=first"))
    assert card(first)["init_from"] is None
    capsys.readouterr()
    second = fit(recipe("text", "name=second", "init_from=runs/first"))
    assert ", from runs/first; validation" in capsys.readouterr().out.splitlines()[0]
    file = first / "checkpoints" / "last.ckpt"
    assert card(second)["init_from"] == {
        "path": "runs/first",
        "steps": 6,
        "tokens_seen": 6 * 4 * 16,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }
    # Its own steps are counted from where it started.
    assert card(second)["steps"] == 6


def test_another_encoding_keeps_its_own_start(here, recipe):
    fit(recipe("max_index", "name=first", "model.encoding=t5"))
    origin = read_init_from(recipe("max_index", "init_from=runs/first"))
    for encoding, taken in (
        ("t5", True),
        ("{name: t5, num_buckets: 8}", False),
        ("learned", False),
        ("[t5, rope]", True),
        ("[rope, t5]", False),
    ):
        task = fresh(recipe("max_index", f"model.encoding={encoding}", "seed=3"))
        before = {name: value.clone() for name, value in task.state_dict().items()}
        init_weights(origin, task)
        for name, value in task.state_dict().items():
            if name.startswith("model.encoding."):
                wanted = origin.weights[name] if taken else before[name]
            else:
                wanted = origin.weights[name]
            assert torch.equal(value, wanted), (encoding, name)


def test_another_model_is_wrong_input(here, recipe, monkeypatch):
    fit(recipe("max_index", "name=first"))
    monkeypatch.setattr(training, "open_data", lambda recipe: pytest.fail("the data was read"))
    for change, reported in (
        ("model.d_model=32", "model.d_model is 16 there and 32 here"),
        # The same shapes, and yet other heads.
        ("model.num_heads=4", "model.num_heads is 2 there and 4 here"),
        ("model.kind=decoder", "model.kind is encoder there and decoder here"),
        ("model.qk_norm=true", "model.qk_norm is False there and True here"),
        ("model.activation=swiglu", "model.activation is gelu there and swiglu here"),
        # The same weights, and yet other logits.
        ("model.embedding_scale=2", "model.embedding_scale is 1.0 there and 2.0 here"),
    ):
        with pytest.raises(InputError) as caught:
            fit(recipe("max_index", "name=second", "init_from=runs/first", change))
        (problem,) = caught.value.problems
        assert problem.key == "init_from" and reported in problem.message
        assert problem.message.startswith("runs/first holds another model: ")
    assert not (here / "runs" / "second").exists()


def test_another_tokenizer_is_wrong_input(here, recipe):
    fit(recipe("text", "name=first"))
    with pytest.raises(InputError, match="init_from: runs/first was trained with another tokenizer"):
        fit(recipe("text", "name=second", "init_from=runs/first", "data.corpus_seed=1"))
    with pytest.raises(InputError, match=r"a vocabulary of 300 there, of 280 here"):
        fit(recipe("text", "name=second", "init_from=runs/first", "data.vocab_size=280"))
    assert not (here / "runs" / "second").exists()


def test_a_missing_run_is_exit_2_before_the_data_is_read(here, mapping, capsys, monkeypatch):
    write_recipe(here, resolve({**mapping(), "init_from": "runs/nothing"}))
    monkeypatch.setattr(training, "open_data", lambda recipe: pytest.fail("the data was read"))
    line = next(
        n for n, text in enumerate((here / "recipe.yaml").read_text().splitlines(), 1) if "init_" in text
    )
    assert cli.main(["fit", "--recipe", "recipe.yaml"]) == 2
    assert capsys.readouterr().err == (
        f"recipe.yaml:{line}: init_from: runs/nothing: no such run or checkpoint\n"
    )
    assert cli.main(["fit", "--recipe", "recipe.yaml", "--set", "init_from=recipe.yaml"]) == 2
    assert "or not a checkpoint of the zoo" in capsys.readouterr().err
    assert not (here / "runs").exists()


def test_a_resumed_run_goes_on_from_its_own_checkpoint(here, recipe):
    first = fit(recipe("max_index", "name=first"))
    schedule = "optimizer.schedule=constant"
    half = recipe("max_index", "name=second", "init_from=runs/first", schedule, "trainer.max_steps=3")
    whole = half.model_copy(update={"trainer": half.trainer.model_copy(update={"max_steps": 6})})
    expected = weights(fit(whole, out=here / "whole"))
    fit(half)
    began = card(here / "runs" / "second")["init_from"]
    (first / "checkpoints" / "last.ckpt").unlink()  # not needed any more
    resumed = fit(whole, resume=True)
    assert all(torch.equal(expected[name], value) for name, value in weights(resumed).items())
    assert card(resumed)["init_from"] == began and began["steps"] == 6


def test_a_resumed_run_cannot_start_from_another(here, recipe):
    fit(recipe("max_index", "name=first"))
    fit(recipe("max_index", "name=second", "init_from=runs/first"))
    for other in ("runs/second", "null"):
        with pytest.raises(InputError, match=r"init_from: the run has 'runs/first'"):
            fit(recipe("max_index", "name=second", f"init_from={other}"), resume=True)
