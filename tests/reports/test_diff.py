"""What differs between two runs, and whether it matters."""

import pytest

from zoo.errors import InputError
from zoo.reports.compare import diff


def lines_of(text):
    return [line.split() for line in text.splitlines() if line]


def test_runs_that_differ_in_the_encoding_are_comparable(write_run):
    text = diff(write_run("a"), write_run("b", "rope", seed=1))
    assert text.startswith("runs/a and runs/b: comparable\n")
    assert ["recipe", "model.encoding", "alibi", "rope"] in lines_of(text)
    assert ["recipe", "seed", "0", "1"] in lines_of(text)
    assert "caveats" not in text


def test_runs_that_are_the_same_but_for_the_seed_have_nothing_else(write_run):
    text = diff(write_run("a"), write_run("b", seed=1))
    assert [line[1] for line in lines_of(text)[3:]] == ["name", "seed"]


def test_of_one_encoding_the_options_are_reported(write_run):
    text = diff(write_run("a", "rope"), write_run("b", {"name": "rope", "partial": 0.5}))
    assert ["recipe", "model.encoding.partial", "1.0", "0.5"] in lines_of(text)
    assert "model.encoding.base" not in text


def test_forbidden_differences_are_separate_from_allowed_ones(write_run):
    changes = {"optimizer.lr": 0.5, "trainer.devices": 2}
    card = {"steps": 5, "finished": False, "parameters.positional": 4, "git_commit": "f" * 40}
    text = diff(write_run("a"), write_run("b", "rope", recipe=changes, card=card))
    why, rest = text.split("what comparable runs may differ in:")
    may, caveats = rest.split("caveats:")
    assert why.startswith("runs/a and runs/b: not comparable, because of\n")
    assert [line[1] for line in lines_of(why)[2:]] == ["optimizer.lr", "steps", "finished"]
    assert {line[1] for line in lines_of(may)[1:]} == {
        "name", "model.encoding", "trainer.devices", "parameters.positional",
    }  # fmt: skip
    assert "git commit" in caveats and "tokens per second do not compare" in caveats


def test_rows_that_scored_other_tokens_are_reported(write_run, row_of):
    runs = [
        write_run(
            name, encoding, values={16: "no"}, rows=lambda made, d=digest: [row_of(made, 64, 1.0, targets=d)]
        )
        for name, encoding, digest in (("a", "alibi", "1" * 12), ("b", "rope", "2" * 12))
    ]
    text = diff(*runs)
    assert "not comparable" in text and "nonoverlapping: other targets were scored" in text


def test_runs_need_not_be_evaluated(write_run):
    text = diff(write_run("a", rows=[]), write_run("b", "rope"))
    assert "comparable" in text and "runs/a: not evaluated" in text


def test_the_same_run_twice_and_a_missing_run_are_refused(write_run):
    run = write_run("a")
    with pytest.raises(InputError, match="are the same run"):
        diff(run, run)
    with pytest.raises(InputError, match="nosuch: no such run folder"):
        diff(run, run.parent / "nosuch")


def test_a_plugin_that_was_edited_is_reported(write_run):
    source = {"name": "mine", "file": "mine.py"}
    runs = [write_run(n, card={"code_source": [source | {"sha256": d * 64}]}) for n, d in ("a1", "b2")]
    assert ["card", "code.mine", "1" * 12, "2" * 12] in lines_of(diff(*runs))
