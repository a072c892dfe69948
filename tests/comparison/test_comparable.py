"""Comparable runs, and the reported differences of others."""

import shutil

import pytest

from zoo.comparison.comparable import differences
from zoo.comparison.runs import read_runs
from zoo.errors import InputError
from zoo.reports.report import build


def found(*runs):
    return [str(one) for one in differences(read_runs(runs))]


MAY_DIFFER = {
    "seed": 1, "data.root": "elsewhere", "data.cache": "cache", "data.workers": 2, "model.kernel": "sdpa",
    "trainer.devices": 2, "trainer.num_nodes": 2, "trainer.strategy": "ddp", "trainer.accelerator": "cpu",
    "trainer.accumulate_grad_batches": 2, "trainer.log_every_n_steps": 7, "trainer.limit_val_batches": 3,
    "trainer.val_check_interval": 3, "trainer.deterministic": True, "trainer.max_time": "01:00:00:00",
    "checkpoint.every_n_steps": 3, "logging": ["csv"], "compile": True, "evaluate.lengths": [16],
}  # fmt: skip


def test_where_and_how_a_run_was_computed_may_differ(write_run):
    one = write_run("a")
    for key, value in MAY_DIFFER.items():
        assert found(one, write_run(key, "rope", recipe={key: value})) == [], key


MAY_NOT_DIFFER = [
    ("model.d_model", 32, 16),
    ("model.num_layers", 2, 1),
    ("model.dropout", 0.5, 0.0),
    ("model.window", 4, "null"),
    ("data.sequence_length", 32, 16),
    ("data.batch_size", 8, 4),
    ("data.vocab_size", 400, 300),
    ("data.documents", 10, 400),
    ("data.corpus_seed", 1, 0),
    ("optimizer.lr", 0.5, 0.001),
    ("optimizer.betas", [0.5, 0.6], [0.9, 0.95]),
    ("trainer.precision", "bf16-mixed", "auto"),
    ("trainer.gradient_clip_val", 2.0, 1.0),
    ("trainer.gradient_clip_algorithm", "value", "not set"),
    ("init_from", "runs/old", "not set"),
]


def test_every_other_key_of_the_recipes_may_not(write_run):
    one = write_run("a")
    for key, value, plain in MAY_NOT_DIFFER:
        runs = one, write_run(key, "rope", recipe={key: value})
        assert f"recipe {key}: {plain} in runs/a; {value} in runs/{key}" in found(*runs)


CARDS = (
    ("task", "max_index", "language_modelling in runs/a; max_index in runs/b"),
    ("fingerprint.corpus", "f" * 64, "cccccccccccc in runs/a; ffffffffffff in runs/b"),
    ("fingerprint.tokenizer", "f" * 64, "dddddddddddd in runs/a; ffffffffffff in runs/b"),
    ("tokens_seen", 5, "384 in runs/a; 5 in runs/b"),
    ("finished", False, "true in runs/a; false in runs/b"),
    ("parameters.other", 7, "1000 in runs/a; 7 in runs/b"),
    ("init_from.sha256", "a" * 64, "not set in runs/a; aaaaaaaaaaaa in runs/b"),
)


def test_cards_must_agree(write_run):
    one = write_run("a")
    for key, value, difference in CARDS:
        other = write_run("b", "rope", card={key: value})
        assert found(one, other) == [f"card {key}: {difference}"]
        shutil.rmtree(other)


def test_versions_and_values_of_the_encoding_may_differ(write_run):
    one = write_run("a")
    for key, value in (
        ("versions.torch", "2.14.0"), ("git_commit", "9" * 40), ("parameters.positional", 5),
        ("name", "other"), ("fingerprint.plugins.mine", "9" * 64),
    ):  # fmt: skip
        assert found(one, write_run(key, "rope", card={key: value})) == [], key


def test_every_differing_key_is_reported_once_with_the_runs_that_agree(write_run):
    runs = [write_run(f"r{index}", seed=index) for index in range(6)]
    runs += [write_run("x", "rope", recipe={"optimizer.lr": 0.5, "data.batch_size": 2}, card={"steps": 6})]
    runs += [write_run("y", "rope", seed=1, recipe={"optimizer.lr": 0.7})]
    assert found(*runs) == [
        "recipe data.batch_size: 2 in runs/x; 4 in runs/r0, runs/r1, runs/r2, runs/r3 and 3 others",
        "recipe optimizer.lr: 0.5 in runs/x; 0.7 in runs/y; "
        "0.001 in runs/r0, runs/r1, runs/r2, runs/r3 and 2 others",
    ]


def test_the_same_encoding_and_seed_twice_is_reported(write_run):
    runs = write_run("a"), write_run("b"), write_run("c", seed=1), write_run("d", "rope")
    assert found(*runs) == [
        "the same encoding and seed twice (alibi, seed 0): runs/a, runs/b; leave out all but one"
    ]
    assert found(write_run("e"), write_run("f", {"name": "alibi", "slopes": "geometric"})) == []


def test_the_refusal_lists_all_differences_and_the_remedies(write_run):
    runs = [write_run("a"), write_run("b"), write_run("c", "rope", recipe={"optimizer.lr": 0.5})]
    with pytest.raises(InputError) as caught:
        build(runs)
    lines = str(caught.value).splitlines()
    assert lines[0] == "not comparable: they differ in more than the encoding and the seed"
    assert lines[1] == "  recipe optimizer.lr: 0.5 in runs/c; 0.001 in runs/a, runs/b"
    assert "the same encoding and seed twice" in lines[2]
    assert lines[3].endswith("python -m zoo compare --diff runs/a runs/c") and "--force" in lines[4]
    report = build(runs, force=True)
    assert [f"  {one}" for one in report.differences] == lines[1:3]


def test_a_copy_of_a_run_is_refused(write_run):
    with pytest.raises(InputError) as caught:
        build([write_run("a"), write_run("b")])
    heading, why, *hints = str(caught.value).splitlines()
    assert heading == "not comparable:" and "the same encoding and seed twice" in why
    assert len(hints) == 1 and "--force" in hints[0]  # nothing differs that --diff could show


def test_a_plugin_that_was_edited_between_two_runs_is_two_encodings(write_run):
    source = {"name": "mine", "file": "mine.py"}
    runs = [
        write_run("a", card={"code_source": [source | {"sha256": "1" * 64}]}),
        write_run("b", seed=1, card={"code_source": [source | {"sha256": "1" * 64}]}),
        write_run("c", seed=2, card={"code_source": [source | {"sha256": "2" * 64}]}),
    ]
    report = build(runs)
    assert dict(zip(report.summary["encoding"], report.summary["seeds"], strict=True)) == {
        "alibi code.mine=111111111111": 2,
        "alibi code.mine=222222222222": 1,
    }


def test_the_same_weights_from_another_path_are_the_same(write_run):
    weights = {"path": "x", "steps": 1, "tokens_seen": 2, "sha256": "a" * 64}

    def run(name, encoding, path, **more):
        return write_run(name, encoding, recipe={"init_from": path}, card={"init_from": weights | more})

    runs = run("a", "alibi", "runs/x"), run("b", "rope", "./runs/x")
    assert found(*runs) == []
    assert found(runs[0], run("c", "rope", "runs/x", sha256="b" * 64)) == [
        "card init_from.sha256: aaaaaaaaaaaa in runs/a; bbbbbbbbbbbb in runs/c"
    ]
