"""Reading a run for a comparison, and the errors of one that cannot be read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cells import column, notes

from zoo.comparison.runs import read_runs
from zoo.errors import InputError
from zoo.reports.report import build


def test_a_run_is_read(write_run):
    (run,) = read_runs([write_run("a", "rope", seed=3, speeds=(5, 300, 100))])
    assert (run.path, run.seed, run.label, run.left_out) == ("runs/a", 3, "rope", ())
    assert run.speed == 100  # the median, which the slow start does not move
    assert [row.length for row in run.measurements[0].rows] == [16, 32]


@pytest.mark.launch
def test_nothing_of_torch_is_imported():
    code = "import sys, zoo.reports.compare; print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "False", done.stderr


def test_a_run_given_twice_is_read_once_and_the_order_kept(write_run):
    a, b = write_run("a"), write_run("b", "rope")
    assert [run.path for run in read_runs([b, a, Path("runs/../runs/b"), a.resolve()])] == [
        "runs/b",
        "runs/a",
    ]


def file_of(run):
    (file,) = (run / "evaluation" / "measurements").iterdir()
    return file


def test_all_that_is_wrong_is_reported_at_once(write_run, tmp_path):
    runs = [write_run(name) for name in "abcdefg"]
    (runs[0] / "recipe.yaml").unlink()
    (runs[0] / "card.json").write_text("{")
    (runs[1] / "card.json").unlink()
    file_of(runs[2]).write_text('{"rows": 3}')
    file_of(runs[3]).unlink()
    (runs[4] / "metrics.csv").write_bytes(b"step,train/tokens_per_second\n1,\xff\n")
    (runs[5] / "recipe.yaml").write_text("model: [")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as caught:
        read_runs([*runs, Path("nosuch"), Path("empty"), Path("file")])
    reported = [str(problem) for problem in caught.value.problems]
    wanted = [
        "runs/a/recipe.yaml: cannot be read: No such file",
        "runs/a/card.json:1: cannot be read: it is not JSON",
        "runs/b/card.json: the run's card is missing",
        "runs/c/evaluation/measurements/nonoverlapping-",
        "runs/d: was not evaluated; do it with: python -m zoo evaluate runs/d",
        "runs/e/metrics.csv: cannot be read",
        "runs/f/recipe.yaml:1: not YAML",
        "nosuch: no such run folder",
        "empty: not a run",
        "file: no such run folder",
    ]
    assert len(reported) == len(wanted), reported
    for line, start in zip(reported, wanted, strict=True):
        assert line.startswith(start), (line, start)


def test_the_faulty_key_of_a_recipe_is_named(write_run):
    run = write_run("a")
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["trainer"]["max_step"] = recipe["trainer"].pop("max_steps")
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.raises(InputError, match=r"runs/a/recipe.yaml: trainer.max_step.*did you mean 'max_steps'"):
        read_runs([run])


def test_the_faulty_key_of_a_measurement_is_named(write_run, edit):
    for key, change in {
        "step": lambda one: {k: v for k, v in one.items() if k != "step"},
        "length": lambda one: one | {"rows": [one["rows"][0] | {"length": 0}]},
        "bits_per_byte": lambda one: one | {"rows": [one["rows"][0] | {"bits_per_byte": "1.5"}]},
        "parameters": lambda one: one | {"parameters": [1]},
    }.items():
        run = write_run(key)
        edit(file_of(run), change)
        with pytest.raises(InputError, match=key):
            read_runs([run])


def test_only_the_state_that_the_run_ended_with_is_compared(write_run, row_of):
    def more(recipe):
        return [row_of(recipe, 16, 9.0, checkpoint="checkpoints/best.ckpt")]

    (run,) = read_runs([write_run("a", rows=more)])
    assert [row.bits_per_byte for one in run.measurements for row in one.rows] == [1.5, 1.6]
    assert run.left_out == ("measurements of checkpoints/best.ckpt are left out",)


def test_rows_of_an_earlier_step_alone_are_no_evaluation(write_run, edit):
    run = write_run("a")
    edit(run / "card.json", lambda card: card | {"steps": 9})
    with pytest.raises(
        InputError, match=r"was not evaluated \(measurements of step 6 are left out: it is at step 9 now\)"
    ):
        read_runs([run])


def test_a_key_missing_from_an_old_recipe_has_its_default(write_run):
    old, new = write_run("old"), write_run("new")
    recipe = yaml.safe_load((old / "recipe.yaml").read_text())
    del recipe["init_from"], recipe["model"]["qk_norm"], recipe["model"]["encoding"]["form"]
    (old / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    before, now = (run.recipe for run in read_runs([old, new]))
    assert before | {"name": "new"} == now


def test_the_encoding_of_a_plugin_that_is_not_here_is_kept_as_it_was(write_run):
    run = write_run("a")
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["model"]["encoding"] = {"name": "theirs", "slope": 3}
    recipe["plugins"] = ["gone/theirs.py"]
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    card = json.loads((run / "card.json").read_text())
    (run / "card.json").write_text(json.dumps(card | {"encoding": "theirs"}))
    (read,) = read_runs([run])
    assert read.label == "theirs" and read.recipe["model"]["encoding"] == {"name": "theirs", "slope": 3}


def test_values_that_are_not_finite_are_read_as_missing(write_run):
    run = write_run("a")
    file = file_of(run)
    measured = json.loads(file.read_text())
    names = ("bits_per_byte", "bits_per_byte_low", "documents")
    values = (float("nan"), float("inf"), float("-inf"))
    measured["rows"][0] |= dict(zip(names, values, strict=True))
    file.write_text(json.dumps(measured))
    (read,) = read_runs([run])
    assert [getattr(read.measurements[0].rows[0], name) for name in names] == [None] * 3
    (panel,) = build([run]).panels
    assert column(panel, "alibi") == [None, 1.6] and column(panel, "alibi", "count") == [None, 7]
    assert notes(panel, "alibi") == {16: "not finite"}
