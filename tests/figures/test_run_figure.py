"""The figure of a run shows the values that its model computes; every kind of run has its panels."""

import numpy as np
import pytest
import torch
from figure_texts import text_faults
from published import publish

import zoo
from zoo import cli
from zoo.data.text.tokenizer import open_tokenizer
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError
from zoo.figures.activations import observe
from zoo.figures.grid import grid
from zoo.figures.model import columns, learned, mean_over_sequences
from zoo.figures.plots import spread
from zoo.figures.samples import open_samples, token_names
from zoo.figures.style import content
from zoo.models.transformer import size_of
from zoo.pretrained.import_model import import_model, read_published
from zoo.runs.load import load_run

QUICK = ["trainer.enable_progress_bar=false", "trainer.limit_val_batches=0"]
RECIPE = {
    "model": {"kind": "decoder", "encoding": "t5", "d_model": 16, "num_layers": 1, "num_heads": 2},
    "optimizer": {"lr": 1e-3, "warmup_steps": 1},
    "trainer": {"max_steps": 2, "accelerator": "cpu", "precision": "32-true"},
    "compile": False,
    "logging": ["csv"],
}
SAMPLE = {
    "name": "sample", "sequence_length": 16, "batch_size": 4, "vocab_size": 300, "documents": 12, "words": 60,
}  # fmt: skip
MAX_INDEX = {"name": "max_index", "sequence_length": 8, "batch_size": 4}
BY_POSITION = ["attention_by_distance", "entropy", "first_token", "norm"]
PANELS = 2 + 5 + 4  # maps, by position, learned


def fitted(home, name, data, *sets):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setattr("zoo.reports.evaluate.write_results", lambda folder: None)
        run = zoo.fit({**RECIPE, "name": name, "data": data}, [*QUICK, "evaluate.lengths=[8]", *sets])
        return (home / run.path).absolute()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("drawn")


@pytest.fixture(scope="module")
def text_run(home):
    return fitted(home, "text", SAMPLE, "model.num_layers=2")


@pytest.fixture(scope="module")
def ended_run(home):
    return fitted(home, "ended", SAMPLE, "model.encoding=learned")


@pytest.fixture(scope="module")
def encoder_run(home):
    return fitted(home, "encoder", MAX_INDEX, "model.kind=encoder", "model.encoding=alibi")


@pytest.fixture(scope="module")
def imported_run(home):
    publish("llama", home / "published")
    return import_model(read_published(str(home / "published"), []), "llama", [], home / "llama")


def panels_of(found, column=0):
    return {panel.key: panel for panel in [*found.values()][column]}


def test_names_of_tokens_can_be_drawn(text_run):
    tokenizer = open_tokenizer(str(text_run / "tokenizer.json"))
    names = token_names(tokenizer, torch.from_numpy(tokenizer.encode("a\r\n\tb  c\x07")))
    assert all(name.isprintable() for name in names)
    assert {"\\r", "↵", "⇥"} <= {*names}


def test_the_panels_hold_the_values_of_the_model(text_run):
    panels = panels_of(columns(text_run))
    task, samples = open_samples(text_run)
    assert sorted(samples.batches) == [16, 32, 64] and len(samples.names) == len(samples.excerpt) == 12
    weights = task.model.attention(samples.excerpt[None])[:, 0].numpy()
    for number in range(2):
        drawn = panels[f"attention_map_{number}"].data
        assert sorted(drawn["heads"]) == [0, 1] and list(drawn["names"]) == samples.names
        np.testing.assert_allclose(drawn["weights"], weights[number, drawn["heads"]], atol=1e-6)
    seen = observe(task.model, samples.batches[64], 16)
    for key, values in (("entropy", seen.entropy), ("first_token", seen.first), ("norm", seen.norm)):
        mean, low, high = line = mean_over_sequences(values[:, 1])
        assert (low <= mean + 1e-9).all() and (mean <= high + 1e-9).all()
        drawn = [panels[key].data[end][1] for end in ("mean", "low", "high")]
        np.testing.assert_allclose(drawn, line, rtol=1e-4, err_msg=key)
    for side in range(2):
        line = mean_over_sequences(seen.attention[:, 0, :, side])[0]
        np.testing.assert_allclose(panels["attention_by_distance"].data["mean"][2 * side], line, rtol=1e-4)
    # One after the other, the losses are those of the model itself.
    batch = samples.batches[16]
    with torch.no_grad():
        nats = task.model(batch["tokens"], targets=batch["targets"], reduction="none")
    assert panels["loss"].data["mean"][-1, 0] == pytest.approx(nats.mean().item(), rel=1e-4)


def test_every_kind_of_run_has_its_panels(text_run, ended_run, encoder_run, imported_run):
    said = []
    figure = columns(text_run, ended_run, encoder_run, log=said.append)
    for number, layers in enumerate((2, 1, 1)):
        own = list(panels_of(figure, number))
        assert own[: layers + 4] == [f"attention_map_{layer}" for layer in range(layers)] + BY_POSITION
        assert "loss" in own
        assert all(panel.title and panel.caption for panel in panels_of(figure, number).values())
    assert [note for note in said if str(ended_run) in note] == [
        f"{ended_run}: length {n} is not drawn: the encoding ends at 16 tokens" for n in (32, 64)
    ]
    book = imported_run / "book.txt"
    book.write_text("the cat sat on the mat " * 400)
    figure = columns(imported_run, lengths=[8, 40], sets=["data.name=text", f"data.root={book}"])
    panels = panels_of(figure)
    assert np.isfinite(panels["loss"].data["mean"][0]).all()
    names = panels["attention_map_0"].data["names"]
    assert set("".join(names)) <= set("thecatsonm") and len(names) == 8
    assert b"<svg" in content(grid({"imported": [*panels.values()]}), ".svg")


def test_wrong_input_is_one_message(text_run, here):
    with pytest.raises(InputError) as error:
        columns("nowhere", "else")
    assert len(error.value.problems) == 2
    with pytest.raises(InputError, match="device 'nonsense'"):
        columns(text_run, device="nonsense")


def test_no_text_is_cut_off_or_overlaps(text_run):
    assert text_faults(grid(columns(text_run), "title")) == []


def test_means_skip_missing_values():
    values = np.array([[1.0, np.nan, 3.0], [3.0, np.nan, np.nan]])
    mean, low, high = mean_over_sequences(values)
    assert mean[0] == 2 and np.isnan(mean[1]) and mean[2] == 3
    assert low[0] < 2 < high[0] and np.isnan([low[1], low[2]]).all()
    assert spread(2, 5) == [0, 1] and spread(24, 4) == [0, 8, 15, 23]


def test_the_command_draws_runs_and_says_where(text_run, ended_run, home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    relative = str(text_run.relative_to(home))
    assert cli.main(["draw", relative, "--lengths", "8,24", "--out", "x.svg"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{PANELS} panels of text (t5): x.svg"
    assert (home / "x.svg").read_text().startswith("<?xml")
    (home / "x.svg").unlink()
    for wrong, message in (
        (["draw", relative, "rope"], "is a run and rope an encoding"),
        (["draw", relative, "--heads", "2"], "--heads is for encodings"),
        (["draw", relative, "--out", "x.gif"], "must end in"),
        (["draw", "runs/nowhere"], "runs/nowhere: no such run or checkpoint"),
        (["draw", "rope", "--lengths", "8"], "--lengths is for runs"),
    ):
        assert cli.main(wrong) == 2
        assert message in capsys.readouterr().err


def test_learned_values_are_drawn_next_to_their_initial_values(text_run, imported_run):
    task = load_run(text_run).task
    panels = {panel.key: panel for panel in learned(task, 32, "#2222af")}
    now = task.model.encoding
    for stack, name in ((now, "learned"), (initial_of(task), "initial")):
        # From the last query backwards, by distance.
        by_distance = stack.bias_table(1, 32)[:, 0].flip(-1).numpy()
        drawn = panels[f"{name}_bias_by_distance"].data
        assert any(np.shape(one) == (2, 32) and np.allclose(one, by_distance) for one in drawn.values())
    # There are none for an encoding without parameters, nor for an imported model: its start is unknown.
    assert learned(load_run(imported_run).task, 32, "#2222af") == []


def initial_of(task):
    size = size_of(task.recipe.model, task.recipe.data.sequence_length)
    return EncodingStack(task.recipe.model.encoding, size, task.recipe.seed).eval()
