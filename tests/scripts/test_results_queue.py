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
from zoo import registry
from zoo.evaluation.measurement import Measurement, Row, Targets, Units
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
    stored = {file.stem: json.loads(file.read_text()) for file in (here / "out").rglob("*.json")}
    assert {name: one["recipe"]["optimizer"]["lr"] for name, one in stored.items()} == {
        f"{encoding}_init_stdauto_lr{lr}_seed0": float(lr)
        for encoding in ("t5", "rope")
        for lr in ("1e-3", "0.01")
    }
    assert {one["recipe"]["model"]["init_std"] for one in stored.values()} == {"auto"}


def test_a_reading_is_apart_from_the_study(queue, here):
    dense = {"name": "dense", "data": "flip_flop", "lengths": [21], "protocols": ["accuracy"]}
    readings = [dense | {"set": ["data.ignore_probability=0.1"]}]
    assert queue(readings=readings, encodings={0: ["rope"]}) == 0
    (stored,) = (json.loads(file.read_text()) for file in (here / "out").rglob("*.json"))
    found = [(one["parameters"], [row["length"] for row in one["rows"]]) for one in stored["measurements"]]
    own, changed = [({}, [9, 21])], [({}, [9, 21])] * 2
    assert found == own + changed + [({"data": "dense"}, [21])]
    assert len({one["targets"]["digest"] for one in stored["measurements"]}) == 2
    # Each page has its own measurements alone; a folder for `zoo compare` has all.
    (study,) = results.read_studies(here / "studies")
    for page, rows in zip(study.pages, ([9, 21], [21]), strict=True):
        results.unpack(page.entries(here / "out"), here / page.title, changed=False, shown_alone=True)
        (one,) = read_measurements(here / page.title / "tiny_rope_seed0")
        assert [row.length for row in one.rows] == rows
    results.unpack(study.entries(here / "out"), here / "all")
    assert len(read_measurements(here / "all" / "tiny_rope_seed0")) == 4


def test_a_study_for_a_gpu_is_passed_over_without_one(queue, here, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert queue(accelerator="gpu") == 0
    assert "needs a GPU" in capsys.readouterr().out
    assert not (here / "out").exists()


@pytest.mark.slow
@pytest.mark.launch
def test_a_study_is_worked_through_after_it_was_stopped_and_killed(queue, here, capsys):
    run_folder, stored = (
        here / "runs" / "results" / "tiny" / "rope_seed0",
        here / "out" / "tiny" / "measurements",
    )
    metrics = run_folder / "metrics.csv"
    endless = {"set": [*STUDY["set"], "trainer.max_steps=100000"]}
    killer = Thread(target=kill_in_training, args=(metrics, os.getpid(), signal.SIGTERM))
    killer.start()
    assert queue(**endless) == 130
    killer.join()
    assert not run_folder.exists() and not [*stored.iterdir()]

    command = [sys.executable, str(SCRIPT), "--studies", "studies", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        kill_in_training(metrics, process.pid, signal.SIGKILL)
    assert run_folder.exists() and not [*stored.glob("*.json")]

    assert queue("--limit", "1") == 0
    assert [file.name for file in stored.iterdir()] == ["rope_seed0.json"]
    before = (stored / "rope_seed0.json").read_bytes()
    assert queue() == 0
    assert (stored / "rope_seed0.json").read_bytes() == before
    assert not run_folder.exists()
    capsys.readouterr()
    assert queue("--list") == 0
    assert capsys.readouterr().out == "tiny: 2 of 2 done\n"

    # Both are what `fit` and `evaluate` give, also as run folders again.
    assert queue("--unpack", "unpacked") == 0
    (study,) = results.read_studies(here / "studies")
    for encoding, changes in (("rope", STUDY["after_training"]["rope"]), ("t5", [])):
        own = zoo.fit(study.recipe(encoding, 0), out=here / "own" / encoding)
        for sets in changes:
            zoo.evaluate(own.path, sets=sets)
        copy = zoo.open(here / "unpacked" / f"tiny_{encoding}_seed0")
        measurements = read_measurements(copy.path)
        assert len(measurements) == 1 + len(changes)
        assert list(map(numbers, measurements)) == list(map(numbers, read_measurements(own.path)))
        assert copy.recipe.as_dict() == own.recipe.as_dict()
        assert copy.card | {"git_commit": None} == own.card | {"git_commit": None}
        assert copy.curves["val/loss"].equals(own.curves["val/loss"])


def test_an_entry_that_another_queue_works_on_is_left_to_it(queue, here):
    write_study(here)
    (study,) = results.read_studies(here / "studies")
    rope, t5 = study.entries(here / "out")
    with rope.claimed() as mine, t5.claimed() as other:
        assert mine and other
        with rope.claimed() as again:
            assert not again
        assert queue() == 0
    assert not [*here.glob("out/tiny/measurements/*")]


def test_scores_are_stored_in_few_characters_and_read_back():
    for scores, text in (([0, 1, 1], "011"), ([1, 1 / 3], [1, 0.333333]), ([0.5, None], [0.5, None])):
        row = Row(length=9, units=Units(scores=scores), accuracy=0.5)
        targets = Targets(digest="d", count=len(scores))
        facts = {"run": "r", "encoding": "rope", "seed": 0, "train_length": 9, "checkpoint": "c", "step": 1}
        one = Measurement(**facts, protocol="accuracy", parameters={}, targets=targets, rows=[row])
        plain = json.loads(json.dumps(results.packed(one)))
        assert plain["rows"][0]["units"]["scores"] == text
        assert results.unpacked(plain).rows[0].units.scores == [
            score and pytest.approx(score, rel=1e-6) for score in scores
        ]


@pytest.mark.slow
def test_an_entry_trained_again_has_its_stored_value(here):
    (study,) = (one for one in results.read_studies(results.STUDIES) if one.name == "max_index")
    study = replace(study, threads=1)  # other tests run beside it
    (entry,) = (one for one in study.entries(results.OUT) if (one.encoding, one.seed) == ("alibi", 0))
    threads = torch.get_num_threads()
    again = results.measured(entry, results.code_state())["measurements"][0]["rows"]
    torch.set_num_threads(threads)
    stored = json.loads(entry.file.read_text())["measurements"][0]["rows"]
    assert [row["length"] for row in again] == [row["length"] for row in stored] == study.lengths
    for old, new in zip(stored, again, strict=True):
        assert old["accuracy_low"] <= new["accuracy"] <= old["accuracy_high"]


def test_a_study_still_has_the_recipe_of_its_stored_entries():
    """Whatever the base recipes and the defaults are now. One entry stands for those of its setting."""
    for study in results.read_studies(results.STUDIES):
        entries = study.entries(results.OUT)
        stored = {one.setting: one for one in entries if one.file.exists()}
        for setting, entry in stored.items():
            old = json.loads(entry.file.read_text())["recipe"]
            new = json.loads(json.dumps(study.recipe(entry.encoding, entry.seed, setting).as_dict()))
            for section in ("task", "model", "data", "optimizer", "trainer"):
                # Keys that came later are not stored. Defaults of an encoding may have changed (t5).
                for key in old[section].keys() & new[section].keys() - {"encoding"}:
                    assert new[section][key] == old[section][key], (entry.file, section, key)


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
                assert recipe.trainer.precision == "32-true" and recipe.compile is False
                encoding, given = recipe.as_dict()["model"]["encoding"], study.options.get(one.encoding, {})
                if one.encoding in lists:
                    assert [part["name"] for part in encoding] == [
                        part if isinstance(part, str) else part["name"] for part in given
                    ]
                else:
                    assert encoding["name"] == given.get("name", one.encoding)
