"""The queue of results works through a study, stops and starts again, and changes nothing that it stores."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
import torch
import yaml

import results
import zoo
from board.measured import shown_runs
from zoo import registry
from zoo.comparison import stored
from zoo.evaluation.store import read_measurements

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "results.py"
STUDY = {
    "base": "recipes/base/flip_flop.yaml",
    "encodings": {0: ["t5", "rope"]},
    "lengths": [9, 21],
    "protocols": ["accuracy"],
    "set": [
        "data.sequence_length=9",
        "model.d_model=16",
        "trainer.max_steps=6",
        "trainer.log_every_n_steps=2",
        "evaluate.samples=33",
    ],
    "options": {"t5": {"num_buckets": 8}},
    "after_training": {"rope": [["model.encoding.scaling=dynamic_ntk"], ["model.window=5"]]},
}
MEASURED_ANEW = {"tokens_per_second", "peak_memory_mb", "others_cpu"}


@pytest.fixture
def queue(here):
    """Run the queue in this process on the study `tiny`, with changes of the study."""
    threads, handler = torch.get_num_threads(), signal.getsignal(signal.SIGTERM)

    def run(*arguments, **changes):
        write_study(here, **changes)
        return results.main(["--studies", "studies", "--out", "out", *arguments])

    yield run
    torch.set_num_threads(threads)
    signal.signal(signal.SIGTERM, handler)


def write_study(folder, **changes):
    (folder / "studies").mkdir(exist_ok=True)
    (folder / "studies" / "options.yaml").write_text("{}")
    (folder / "studies" / "1_tiny.yaml").write_text(yaml.safe_dump(STUDY | changes))


def numbers(measurement):
    """A measurement without what differs from one measuring to the next."""
    plain = measurement.model_dump(exclude={"run"})
    return plain | {
        "rows": [{k: v for k, v in row.items() if k not in MEASURED_ANEW} for row in plain["rows"]]
    }


def kill_in_training(metrics, process, number):
    """Send a signal once a training step was logged."""
    while not metrics.exists():
        time.sleep(0.05)
    os.kill(process, number)


def test_a_grid_has_an_entry_for_each_setting(queue, here):
    assert queue(grid={"optimizer.lr": ["1e-3", 0.01], "model.init_std": ["auto"]}, after_training={}) == 0
    runs = stored.read(here / "out" / "tiny.parquet")
    assert {one.path: one.recipe["optimizer"]["lr"] for one in runs} == {
        f"tiny_{encoding}_init_stdauto_lr{lr}_seed0": float(lr)
        for encoding in ("t5", "rope")
        for lr in ("1e-3", "0.01")
    }
    assert {one.recipe["model"]["init_std"] for one in runs} == {"auto"}


def test_a_reading_is_apart_from_the_study(queue, here):
    dense = {"name": "dense", "data": "flip_flop", "lengths": [21], "protocols": ["accuracy"]}
    readings = [dense | {"set": ["data.ignore_probability=0.1"]}]
    assert queue(readings=readings, encodings={0: ["rope"]}) == 0
    (run,) = stored.read(here / "out" / "tiny.parquet")
    found = [(one.parameters, [row.length for row in one.rows]) for one in run.measurements]
    own, changed = [({}, [9, 21])], [({}, [9, 21])] * 2
    assert found == own + changed + [({"data": "dense"}, [21])]
    assert len({one.targets.digest for one in run.measurements}) == 2
    # Each page has its own measurements alone.
    (study,) = results.read_studies(here / "studies")
    for page, rows in zip(study.pages, ([9, 21], [21]), strict=True):
        (shown,) = shown_runs(page.entries(here / "out"))
        assert [[row.length for row in one.rows] for one in shown.measurements] == [rows]


def test_earlier_checkpoints_are_evaluated_where_a_study_asks(queue, here):
    during = {"steps": [2, 4], "lengths": [21], "protocols": ["accuracy"]}
    kept = [*STUDY["set"], "checkpoint.every_n_steps=2", "checkpoint.keep_every_n_steps=2"]
    assert queue(during=during, set=kept, encodings={0: ["t5"]}, precision="bf16-mixed") == 0
    (run,) = stored.read(here / "out" / "tiny.parquet")
    assert {(one.step, *(row.length for row in one.rows)) for one in run.measurements} == {
        (2, 21), (4, 21), (6, 9, 21),
    }  # fmt: skip
    assert run.recipe["trainer"]["precision"] == "bf16-mixed"


def test_a_study_for_a_gpu_is_passed_over_without_one(queue, here, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert queue(accelerator="gpu") == 0
    assert "needs a GPU" in capsys.readouterr().out
    assert not (here / "out").exists()


@pytest.mark.slow
@pytest.mark.launch
def test_a_study_is_worked_through_after_it_was_stopped_and_killed(queue, here, capsys):
    run_folder, table = here / "runs" / "results" / "tiny" / "rope_seed0", here / "out" / "tiny.parquet"
    metrics = run_folder / "metrics.csv"
    endless = {"set": [*STUDY["set"], "trainer.max_steps=100000"]}
    killer = Thread(target=kill_in_training, args=(metrics, os.getpid(), signal.SIGTERM))
    killer.start()
    assert queue(**endless) == 130
    killer.join()
    assert not run_folder.exists() and not [*table.parent.iterdir()]

    command = [sys.executable, str(SCRIPT), "--studies", "studies", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        kill_in_training(metrics, process.pid, signal.SIGKILL)
    assert run_folder.exists() and not table.exists()

    assert queue("--limit", "1") == 0
    (before,) = stored.read(table)
    assert before.path == "tiny_rope_seed0"
    assert queue() == 0
    assert before in stored.read(table)
    assert not run_folder.exists()
    capsys.readouterr()
    assert queue("--list") == 0
    assert capsys.readouterr().out == "tiny: 2 of 2 done\n"

    # Both are what `fit` and `evaluate` give.
    copies = {run.origin["encoding"]: run for run in stored.read(table)}
    (study,) = results.read_studies(here / "studies")
    for encoding, changes in (("rope", STUDY["after_training"]["rope"]), ("t5", [])):
        own = zoo.fit(study.recipe(encoding, 0), out=here / "own" / encoding)
        for sets in changes:
            zoo.evaluate(own.path, sets=sets)
        copy = copies[encoding]
        assert len(copy.measurements) == 1 + len(changes)
        assert list(map(numbers, copy.measurements)) == list(map(numbers, read_measurements(own.path)))
        assert copy.recipe["model"] == own.recipe.as_dict()["model"]
        assert copy.card | {"git_commit": None} == own.card | {"git_commit": None}
        assert [*copy.validation.values()] == own.curves["val/loss"].dropna().tolist()


def test_an_entry_that_another_queue_works_on_is_left_to_it(queue, here):
    write_study(here)
    (study,) = results.read_studies(here / "studies")
    rope, t5 = study.entries(here / "out")
    with rope.claimed() as mine, t5.claimed() as other:
        assert mine and other
        with rope.claimed() as again:
            assert not again
        assert queue() == 0
    assert not [*here.glob("out/*")]


@pytest.mark.slow
def test_an_entry_trained_again_has_its_stored_value(here):
    (study,) = (one for one in results.read_studies(results.STUDIES) if one.name == "max_index")
    study = replace(study, threads=1)  # other tests run beside it
    (entry,) = (one for one in study.entries(results.OUT) if (one.encoding, one.seed) == ("alibi", 0))
    threads = torch.get_num_threads()
    again = results.measured(entry, results.code_state()).measurements[0].rows
    torch.set_num_threads(threads)
    known = entry.run.measurements[0].rows
    assert [row.length for row in again] == [row.length for row in known] == study.lengths
    for old, new in zip(known, again, strict=True):
        assert old.accuracy_low <= new.accuracy <= old.accuracy_high


def test_a_study_still_has_the_recipe_of_its_stored_entries():
    """Whatever the base recipes and the defaults are now. One entry stands for those of its setting."""
    for study in results.read_studies(results.STUDIES):
        entries = study.entries(results.OUT)
        for setting, entry in {one.setting: one for one in entries if one.run}.items():
            old = entry.run.recipe
            new = json.loads(json.dumps(study.recipe(entry.encoding, entry.seed, setting).as_dict()))
            for section in ("task", "model", "data", "optimizer", "trainer"):
                # Keys that came later are not stored. Defaults of an encoding may have changed (t5).
                for key in old[section].keys() & new[section].keys() - {"encoding"}:
                    assert new[section][key] == old[section][key], (entry.path, section, key)


def test_every_entry_of_every_study_has_a_recipe():
    studies = results.read_studies(results.STUDIES)
    assert len({study.name for study in studies}) == len(studies) >= 9
    for study in studies:
        entries = study.entries(results.OUT)
        assert [one.seed for one in entries] == sorted(one.seed for one in entries)
        lists = {name for name, options in study.options.items() if isinstance(options, list)}
        variants = lists | {name for name, options in study.options.items() if "name" in options}
        every = {one.encoding for one in entries}
        assert every <= variants | set(registry.encodings.names())
        assert study.after_training.keys() <= every
        assert study.options.keys() <= variants | set(registry.encodings.names())
        if study.leaderboard:
            assert {"none", "rope", "alibi"} <= every
            assert ("fire" in every) == (study.recipe("none", 0).model.kind == "decoder")
        for one in entries:
            if one.seed == 0:
                recipe = study.recipe(one.encoding, 0)
                assert (recipe.trainer.precision, recipe.compile) == (study.precision, study.compile)
                encoding, given = recipe.as_dict()["model"]["encoding"], study.options.get(one.encoding, {})
                if one.encoding in lists:
                    assert [part["name"] for part in encoding] == [
                        part if isinstance(part, str) else part["name"] for part in given
                    ]
                else:
                    assert encoding["name"] == given.get("name", one.encoding)
