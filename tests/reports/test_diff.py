"""The differences between two runs, and whether they matter."""

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


def test_the_same_run_twice_and_a_missing_run_are_refused(write_run):
    run = write_run("a")
    with pytest.raises(InputError, match="are the same run"):
        diff(run, run)
    with pytest.raises(InputError, match="nosuch: no such run folder"):
        diff(run, run.parent / "nosuch")
