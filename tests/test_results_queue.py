"""The queue of results works through a study, stops and starts again, and changes nothing that it stores."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

import zoo
from zoo import registry
from zoo.evaluation.store import read_measurements

SCRIPT = Path(__file__).parents[1] / "scripts" / "results.py"
STUDY = {
    "base": "recipes/base/flip_flop.yaml",
    "encodings": {0: ["t5", "rope"]},
    "lengths": [9, 21],
    "protocols": ["accuracy"],
    "set": ["data.sequence_length=9", "model.d_model=16", "trainer.max_steps=6", "evaluate.samples=33"],
    "options": {"t5": {"num_buckets": 8}},
    "after_training": {"rope": [["model.encoding.scaling=dynamic_ntk"], ["model.window=5"]]},
}
MEASURED_ANEW = {"tokens_per_second", "peak_memory_mb", "others_cpu"}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("results", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["results"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["results"]


@pytest.fixture
def queue(script, here):
    """Run the queue in this process on the study `tiny`, with changes of the study."""
    threads, handler = torch.get_num_threads(), signal.getsignal(signal.SIGTERM)

    def run(*arguments, **changes):
        write_study(here, **changes)
        return script.main(["--studies", "studies", "--out", "out", *arguments])

    yield run
    torch.set_num_threads(threads)
    signal.signal(signal.SIGTERM, handler)


def write_study(folder, **changes):
    (folder / "studies").mkdir(exist_ok=True)
    (folder / "studies" / "options.yaml").write_text("{}")
    (folder / "studies" / "1_tiny.yaml").write_text(yaml.safe_dump(STUDY | changes))


def entry(name):
    return json.loads(Path(f"out/tiny/measurements/{name}.json").read_text())


def numbers(measurement):
    """A measurement without what differs from one measuring to the next."""
    plain = measurement.model_dump(exclude={"run"})
    return plain | {
        "rows": [{k: v for k, v in row.items() if k not in MEASURED_ANEW} for row in plain["rows"]]
    }


@pytest.mark.slow
@pytest.mark.launch
def test_a_study_is_worked_through_after_it_was_stopped_and_killed(script, queue, here, capsys):
    endless = [*STUDY["set"], "trainer.max_steps=100000"]
    run_folder = here / "runs" / "results" / "tiny" / "rope_seed0"
    write_study(here, set=endless)
    for number, code in ((signal.SIGTERM, 130), (signal.SIGKILL, -9)):
        command = [sys.executable, str(SCRIPT), "--studies", "studies", "--out", "out"]
        environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])}
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            while not (run_folder / "metrics.csv").exists():
                assert process.poll() is None
                time.sleep(0.1)
            process.send_signal(number)
            assert process.wait() == code
        assert run_folder.exists() == (number == signal.SIGKILL)
    assert not [*here.glob("out/tiny/measurements/*.json")]

    assert queue("--limit", "1") == 0
    assert [file.name for file in here.glob("out/tiny/measurements/*")] == ["rope_seed0.json"]
    before = here.joinpath("out/tiny/measurements/rope_seed0.json").read_bytes()
    assert queue() == 0
    assert here.joinpath("out/tiny/measurements/rope_seed0.json").read_bytes() == before  # skipped
    assert not run_folder.exists()
    capsys.readouterr()
    assert queue("--list") == 0
    assert capsys.readouterr().out == "tiny: 2 of 2 done\n"

    # Both are what `fit` and `evaluate` give.
    (study,) = script.read_studies(here / "studies")
    for encoding, changes in (("rope", STUDY["after_training"]["rope"]), ("t5", ())):
        own = zoo.fit(study.recipe(encoding, 0), out=here / "own" / encoding)
        for sets in changes:
            script.evaluate_changed(own.path, sets)
        stored = entry(f"{encoding}_seed0")
        assert list(map(numbers, map(script.unpacked, stored["measurements"]))) == list(
            map(numbers, read_measurements(own.path))
        )
        assert len(stored["measurements"]) == 1 + len(changes)
        assert zoo.open(own.path).recipe.as_dict() == stored["recipe"]
        assert {**own.card, "git_commit": None} == {**stored["card"], "git_commit": None}

    # Unpacked, they are runs that compare.
    assert queue("--unpack", "runs") == 0
    compared = zoo.compare(["runs/tiny_rope_seed0", "runs/tiny_t5_seed0"]).table
    assert len(compared)


@pytest.mark.slow
def test_an_entry_that_another_queue_works_on_is_left_to_it(script, queue, here):
    write_study(here)
    (study,) = script.read_studies(here / "studies")
    for one in study.entries(here / "out"):
        with one.claimed() as mine, one.claimed() as again:
            assert mine and not again
    with study.entries(here / "out")[0].claimed():
        assert queue() == 0
    assert [file.name for file in here.glob("out/tiny/measurements/*")] == ["t5_seed0.json"]


def test_every_entry_of_every_study_has_a_recipe(script):
    studies = script.read_studies(script.STUDIES)
    assert len({study.name for study in studies}) == len(studies) >= 9
    for study in studies:
        entries = study.entries(script.OUT)
        assert [one.seed for one in entries] == sorted(one.seed for one in entries)
        every = {one.encoding for one in entries}
        assert every <= set(registry.encodings.names()) and {"none", "rope", "alibi"} <= every
        assert study.after_training.keys() <= every and study.options.keys() <= {*registry.encodings.names()}
        assert ("fire" in every) == (study.recipe("none", 0).model.kind == "decoder")
        for one in entries:
            if one.seed == 0:
                recipe = study.recipe(one.encoding, 0)
                assert recipe.trainer.precision == "32-true" and recipe.compile is False
