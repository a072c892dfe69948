"""The curve over training: scores at several lengths while a model learns, and of kept checkpoints."""

import json

import pytest
from run_files import assert_same, logged, saved, settings

import zoo
from zoo import cli
from zoo.errors import InputError
from zoo.reports.evaluate import evaluate_steps
from zoo.reports.fit import fit

DURING = "evaluate.during={every_n_steps: 2, lengths: [8, 24], max_tokens: 64, samples: 8}"
EACH = ["trainer.log_every_n_steps=1", "model.dropout=0.1"]


def rows_of(folder, prefix):
    rows = logged(folder)
    return {int(row["step"]): {k: row[k] for k in row if k.startswith(prefix) and row[k]} for row in rows}


def assert_same_weights(*contents):
    assert_same(*contents, parts=["state_dict"])


@pytest.mark.parametrize("kind, encoding", [
    ("max_index", "rope"), ("text", "[alibi, t5]"), ("text", "{name: rope, scaling: dynamic_ntk, factor: 4}"),
    ("text", "transformer_xl"), ("masked", "sinusoidal"),
])  # fmt: skip
def test_the_training_is_bitwise_the_same(here, recipe, unmeasured, kind, encoding):
    sets = [*EACH, f"model.encoding={encoding}"]
    without = fit(recipe(kind, *sets), out=here / "without")
    scored = fit(recipe(kind, *sets, DURING), out=here / "scored")
    for prefix in ("train/loss", "train/gradient_norm", "val/"):
        assert rows_of(without, prefix) == rows_of(scored, prefix)
    assert_same_weights(saved(without), saved(scored))
    measure = "accuracy" if kind == "max_index" else "loss_nats"
    curve = rows_of(scored, "lengths/")
    for step in range(1, 7):
        expected = {f"lengths/{measure}/{length}" for length in (8, 24)} if step % 2 == 0 else set()
        assert curve[step].keys() == expected
    assert not any(rows_of(without, "lengths/").values())


def test_the_last_scores_are_those_of_the_trained_model(here, recipe):
    """With the same targets."""
    few = ["evaluate.max_tokens=64", "evaluate.lengths=[8, 24]"]
    folder = fit(recipe("text", *EACH, DURING, *few))
    stored = json.loads((folder / "evaluation" / "lengths.json").read_text())
    logged = rows_of(folder, "lengths/")[6]
    for row in stored:
        assert float(logged[f"lengths/loss_nats/{row['length']}"]) == row["loss_nats"]


@pytest.mark.slow
def test_two_processes_have_the_curve_of_one(forks, here, mapping, recipe, unmeasured):
    import yaml

    (here / "text.yaml").write_text(yaml.safe_dump({**mapping("text"), "name": "text"}))
    sets = [DURING, "trainer.log_every_n_steps=1", "trainer.devices=2"]
    command = ["fit", "--recipe", "text.yaml", *settings(*sets)]
    forks.run([*command, "--out", "two"], here, "two", 2)
    one = rows_of(fit(recipe("text", DURING, "trainer.log_every_n_steps=1")), "lengths/")
    two = rows_of(here / "two", "lengths/")
    for step, values in one.items():
        for name, value in values.items():
            assert float(two[step][name]) == pytest.approx(float(value), rel=1e-4)


@pytest.mark.slow
def test_kept_checkpoints_give_the_curve_over_training(here, recipe, capsys):
    folder = fit(recipe("max_index", "checkpoint.every_n_steps=4", "checkpoint.keep_every_n_steps=2"))
    names = {path.name for path in (folder / "checkpoints").iterdir()}
    assert names == {"last.ckpt", "best.ckpt", "step-2.ckpt", "step-4.ckpt", "step-6.ckpt"}
    assert_same_weights(saved(folder), saved(folder, "step-6"))
    assert saved(folder, "step-2")["global_step"] == 2
    capsys.readouterr()
    assert cli.main(["evaluate", str(folder), "--checkpoints", "all", "--lengths", "8,16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    files = [folder / "checkpoints" / f"{name}.ckpt" for name in ("step-2", "step-4", "last")]
    assert [line for line in lines if line.endswith("by length")] == [f"{file} by length" for file in files]
    at = lines.index(f"{folder}: accuracy by step and length (accuracy)")
    assert lines[at + 1].split() == ["step", "8", "16"]
    assert [line.split()[0] for line in lines[at + 2 :]] == ["2", "4", "6"]
    stored = json.loads((folder / "evaluation" / "lengths.json").read_text())
    scores = {(row["step"], row["length"]): row["accuracy"] for row in stored}
    rows = zoo.evaluate(folder, lengths=8, checkpoints="all")
    assert dict(zip(rows["step"], rows["accuracy"], strict=True)) == {
        step: score for (step, length), score in scores.items() if length == 8
    }
    for line in lines[at + 2 :]:
        step, *values = line.split()
        assert values == [f"{scores[int(step), length]:.4g}" for length in (8, 16)]


def test_a_run_without_kept_checkpoints_is_reported(run_copy):
    with pytest.raises(InputError, match=r"only a run with checkpoint\.keep_every_n_steps keeps"):
        evaluate_steps([run_copy])


@pytest.mark.slow
def test_runs_without_kept_checkpoints_are_reported_before_others_are_evaluated(recipe, run_copy, capsys):
    folder = fit(recipe("max_index", "checkpoint.every_n_steps=4", "checkpoint.keep_every_n_steps=2"))
    capsys.readouterr()
    with pytest.raises(InputError, match=str(run_copy)):
        evaluate_steps([folder, run_copy])
    assert not capsys.readouterr().out
