"""A study is worked through, stopped and started again, and stored as `fit` and `evaluate` measure it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest
import torch
import yaml

import results
import zoo
import zoo.training.fit
from board.measured import shown_runs
from zoo import cli
from zoo.comparison import stored
from zoo.evaluation.store import read_measurements
from zoo.sweep.study import read_study

ROOT = Path(__file__).parents[2]
STUDY = {
    "base": "recipes/base/flip_flop.yaml",
    "encodings": {0: ["t5", "rope"]},
    "lengths": [9, 21],
    "protocols": ["accuracy"],
    "set": [
        "data.sequence_length=9",
        "data.batch_size=8",
        "model.d_model=16",
        "trainer.limit_val_batches=2",
        "trainer.max_steps=6",
        "trainer.log_every_n_steps=2",
        "evaluate.samples=33",
    ],
    "options": {"t5": {"num_buckets": 8}},
    "after_training": {"rope": [["model.encoding.scaling=dynamic_ntk"], ["model.window=5"]]},
}
KEPT = [*STUDY["set"], "checkpoint.every_n_steps=2", "checkpoint.keep_every_n_steps=2"]
DENSE = {"name": "dense", "data": "flip_flop", "lengths": [21], "protocols": ["accuracy"]}
PLUGIN = """\
import zoo
import zoo.training.fit
from zoo import registry


@zoo.register("near")
class Near(registry.encodings.load("alibi")):
    pass
"""
MEASURED_ANEW = {"tokens_per_second", "peak_memory_mb", "others_cpu"}


@pytest.fixture
def sweep(here):
    """Run the queue in this process on the study `tiny`, with changes of the study."""
    threads = torch.get_num_threads()

    def run(*arguments, **changes):
        write_study(here, **changes)
        return cli.main(["sweep", "1_tiny.yaml", "--store", "out", *arguments])

    yield run
    torch.set_num_threads(threads)


def write_study(folder, **changes):
    (folder / "1_tiny.yaml").write_text(yaml.safe_dump(STUDY | changes, sort_keys=False))


def numbers(measurement):
    """A measurement without what differs from one measuring to the next."""
    plain = measurement.model_dump(exclude={"run"})
    return plain | {
        "rows": [{k: v for k, v in row.items() if k not in MEASURED_ANEW} for row in plain["rows"]]
    }


def kill_in_training(metrics, process, number):
    """Send a signal once a training step was logged."""
    before = metrics.stat().st_mtime_ns if metrics.exists() else None
    while not metrics.exists() or metrics.stat().st_mtime_ns == before:
        time.sleep(0.05)
    os.kill(process, number)


def test_a_grid_has_an_entry_for_each_setting(sweep, here):
    assert sweep(grid={"optimizer.lr": ["1e-3", 0.01], "model.init_std": ["auto"]}, after_training={}) == 0
    runs = stored.read(here / "out" / "tiny.parquet")
    assert {one.path: one.recipe["optimizer"]["lr"] for one in runs} == {
        f"tiny_{encoding}_lr{lr}_init_stdauto_seed0": float(lr)
        for encoding in ("t5", "rope")
        for lr in ("1e-3", "0.01")
    }
    assert {one.recipe["model"]["init_std"] for one in runs} == {"auto"}


def test_a_reading_is_apart_from_the_study(sweep, here):
    readings = [DENSE | {"set": ["data.ignore_probability=0.1"]}]
    assert sweep(readings=readings, encodings={0: ["rope"]}) == 0
    (run,) = stored.read(here / "out" / "tiny.parquet")
    found = [(one.parameters, [row.length for row in one.rows]) for one in run.measurements]
    own, changed = [({}, [9, 21])], [({}, [9, 21])] * 2
    assert found == own + changed + [({"data": "dense"}, [21])]
    assert len({one.targets.digest for one in run.measurements}) == 2
    # Each page has its own measurements alone.
    study, _ = read_study(here / "1_tiny.yaml", results.Study)
    for page, rows in zip(study.pages, ([9, 21], [21]), strict=True):
        (shown,) = shown_runs(page.entries(here / "out"))
        assert [[row.length for row in one.rows] for one in shown.measurements] == [rows]


def test_earlier_checkpoints_are_evaluated_where_a_study_asks(sweep, here):
    during = {"steps": [2, 4], "lengths": [21], "protocols": ["accuracy"]}
    assert sweep("--keep", during=during, set=KEPT, encodings={0: ["t5"]}, precision="bf16-mixed") == 0
    assert (here / "runs" / "studies" / "tiny" / "t5_seed0" / "checkpoints" / "last.ckpt").is_file()
    (run,) = stored.read(here / "out" / "tiny.parquet")
    assert {(one.step, *(row.length for row in one.rows)) for one in run.measurements} == {
        (2, 21), (4, 21), (6, 9, 21),
    }  # fmt: skip
    assert run.recipe["trainer"]["precision"] == "bf16-mixed"


def test_a_run_that_was_kept_is_not_replaced_by_that_of_another_recipe(sweep, here, capsys):
    few = {"encodings": {0: ["t5"]}, "after_training": {}}
    assert sweep("--keep", **few) == 0
    kept = here / "runs" / "studies" / "tiny" / "t5_seed0" / "checkpoints" / "last.ckpt"
    trained = kept.read_bytes()
    (here / "out" / "tiny.parquet").unlink()
    assert sweep(set=[*STUDY["set"], "optimizer.lr=1e-4"], **few) == 1
    assert "a finished run of another recipe is here" in capsys.readouterr().out
    assert kept.read_bytes() == trained


def test_a_trained_entry_whose_evaluation_fails_is_kept_and_evaluated_later(sweep, here, capsys):
    few, reading = {"encodings": {0: ["t5"]}, "after_training": {}}, DENSE | {"data": "nowhere"}
    assert sweep(readings=[reading], **few) == 1
    assert "trained on generated data" in capsys.readouterr().out
    trained = here / "runs" / "studies" / "tiny" / "t5_seed0" / "checkpoints" / "last.ckpt"
    before = trained.stat().st_mtime
    assert sweep("--keep", readings=[DENSE], **few) == 0
    assert trained.stat().st_mtime == before
    (run,) = stored.read(here / "out" / "tiny.parquet")
    assert run.origin["seconds"]["training"] == 0
    assert len(run.measurements) == 2


def test_a_study_for_a_gpu_is_passed_over_without_one(sweep, here, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert sweep(accelerator="gpu") == 0
    assert "needs a GPU" in capsys.readouterr().out
    assert not (here / "out").exists()


@pytest.mark.slow
@pytest.mark.launch
def test_a_stopped_entry_is_resumed_and_a_killed_one_begins_with_another_recipe(
    sweep, here, capsys, monkeypatch
):
    run_folder, table = here / "runs" / "studies" / "tiny" / "rope_seed0", here / "out" / "tiny.parquet"
    metrics = run_folder / "metrics.csv"
    # Long enough for a signal to come in time.
    slow = ["data.batch_size=64", "trainer.limit_val_batches=null", "trainer.max_steps=60"]
    long = {"set": [*STUDY["set"], *slow], "after_training": {}, "threads": 1}
    killer = Thread(target=kill_in_training, args=(metrics, os.getpid(), signal.SIGTERM))
    killer.start()
    assert sweep(**long) == 130
    killer.join()
    assert run_folder.exists() and not [*table.parent.iterdir()]
    runs, fit = [], zoo.training.fit.fit
    monkeypatch.setattr("zoo.training.fit.fit", lambda *a, **k: runs.append(fit(*a, **k)) or runs[-1])
    assert sweep("--limit", "1", **long) == 0
    assert runs[0].checkpoint and not run_folder.exists()
    ((resumed,),) = (run.measurements for run in stored.read(table))
    study, _ = read_study(here / "1_tiny.yaml")
    (own,) = read_measurements(zoo.fit(study.recipe("rope", 0), out=here / "whole").path)
    assert numbers(resumed) == numbers(own)

    table.unlink()
    write_study(here, set=[*STUDY["set"], "trainer.max_steps=100000"])
    command = [sys.executable, "-m", "zoo", "sweep", "1_tiny.yaml", "--store", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        kill_in_training(metrics, process.pid, signal.SIGKILL)
    assert run_folder.exists() and not table.exists()

    assert sweep("--limit", "1") == 0
    (before,) = stored.read(table)
    assert before.path == "tiny_rope_seed0"
    assert sweep() == 0
    assert before in stored.read(table)
    assert not run_folder.exists()
    capsys.readouterr()
    assert sweep("--list") == 0
    assert capsys.readouterr().out == "tiny: 2 of 2 done\n"

    # Both are what `fit` and `evaluate` give.
    copies = {run.origin["encoding"]: run for run in stored.read(table)}
    study, _ = read_study(here / "1_tiny.yaml")
    for encoding, changes in (("rope", STUDY["after_training"]["rope"]), ("t5", [])):
        own = zoo.fit(study.recipe(encoding, 0), out=here / "own" / encoding)
        for sets in changes:
            zoo.evaluate(own.path, sets=sets)
        copy = copies[encoding]
        assert len(copy.measurements) == 1 + len(changes)
        copied = sorted(copy.measurements, key=lambda one: (one.checkpoint, one.protocol, one.identity))
        assert list(map(numbers, copied)) == list(map(numbers, read_measurements(own.path)))
        assert copy.recipe["model"] == own.recipe.as_dict()["model"]
        assert copy.card | {"git_commit": None} == own.card | {"git_commit": None}
        assert [*copy.validation.values()] == own.curves["val/loss"].dropna().tolist()


def test_an_entry_may_have_changes_after_training_of_its_own(here):
    after_training = {"rope": [["a"]], "rope_seed1": [["b"]]}
    write_study(here, encodings=["rope"], seeds=[0, 1], after_training=after_training)
    study, _ = read_study(here / "1_tiny.yaml")
    assert [one.changes_after_training for one in study.entries(here)] == [[["a"]], [["a"], ["b"]]]


def test_an_entry_that_another_queue_works_on_is_left_to_it(sweep, here):
    write_study(here)
    study, _ = read_study(here / "1_tiny.yaml")
    rope, t5 = study.entries(here / "out")
    with rope.claimed() as mine, t5.claimed() as other:
        assert mine and other
        with rope.claimed() as again:
            assert not again
        assert sweep() == 0
    assert not [*here.glob("out/*")]


@pytest.mark.parametrize("changes, at, message", [
    ({"sets": []}, "sets:", "sets: unknown key; did you mean 'set'?"),
    ({"during": {"step": [2]}}, "step:", "during.step: unknown key; did you mean 'steps'?"),
    ({"during": {"steps": [2], "lengths": [9], "protocols": ["accuracy"]}}, "steps:",
     "during.steps: checkpoint.keep_every_n_steps, None, must divide them"),
    ({"during": {"steps": [2, 8], "lengths": [9], "protocols": ["accuracy"]}, "set": KEPT}, "steps:",
     "during.steps: must be from 1 to 6"),
    ({"readings": [{"protocols": ["sliding"], "name": "a", "data": "flip_flop", "lengths": [9]}]},
     "- protocols:", "evaluate.protocols.0: no protocol 'sliding' for task 'answering'; there are: accuracy"),
    ({"readings": [{**DENSE, "set": ["data.ignore_prob=0.1"]}]}, "- data.ignore_prob=",
     "data.ignore_prob: unknown key; did you mean 'ignore_probability'?"),
    ({"readings": 5}, "readings:", "readings: must be a list, got 5"),
    ({"after_training": {"rope": [["model.windw=5"]]}}, "- - model.windw", "model.windw: unknown key"),
    ({"after_training": {"rope_seed0": [["model.d_model=32"]]}}, "- - model.d_model",
     "model.d_model: the run was trained with 16, and 32 would make it another"),
    ({"encodings": []}, "encodings:", "encodings: no entries"),
    ({"grid": {"optimizer.lr": []}}, "encodings:", "encodings: no entries"),
    ({"threads": 0}, "threads:", "threads: must be greater than 0"),
    ({"extends": "1_tiny.yaml"}, "extends:", "extends: 1_tiny.yaml extends this file"),
    ({"options": {"ropee": {}}}, "ropee:", "options.ropee: no encoding 'ropee'; did you mean 'rope'?"),
    ({"lengths": 9}, "lengths:", "lengths: must be a list, got 9; write [9]"),
    ({"encodings": ["alibbi"]}, "- alibbi", "model.encoding: no encoding 'alibbi'; did you mean 'alibi'?"),
    ({"own": {"ropee": []}}, "ropee:", "own.ropee: no encoding 'ropee'; did you mean 'rope'?"),
    ({"set": ["data.x=1"]}, "- data.x", "data.x: unknown key"),
    ({"set": ["seed=1"]}, "- seed", "seed: the sweep sets it"),
    ({"own": {"t5": ["model.x=1"]}}, "- model.x", "model.x: unknown key"),
    ({"options": {"t5": {"num_bucket": 8}}}, "t5:", "model.encoding.num_bucket: "),
    ({"grid": {"optimizer.lrr": [1, 2]}}, "optimizer.lrr:", "optimizer.lrr: unknown key"),
    ({"lengths": [0]}, "lengths:", "evaluate.lengths.0: must be greater than 0"),
])  # fmt: skip
def test_a_wrong_study_is_reported_before_anything_is_trained(sweep, here, capsys, changes, at, message):
    assert sweep(**changes) == 2
    lines = (here / "1_tiny.yaml").read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if line.strip().startswith(at))
    assert f"1_tiny.yaml:{number}: {message}" in capsys.readouterr().err.splitlines()[-1]
    assert not (here / "out").exists()


def test_a_study_may_extend_another(here, capsys):
    """Mappings merge and other values replace; an error has the location of the file that is wrong."""
    write_study(here, grid={"optimizer.lr": [0.01]})
    changed = {"extends": "1_tiny.yaml", "encodings": ["rope"], "seeds": [5]}
    changed |= {"options": {"t5": {"max_distance": 9}}}
    (here / "2_other.yaml").write_text(yaml.safe_dump(changed))
    study, _ = read_study(here / "2_other.yaml")
    assert (study.name, [one.name for one in study.entries(here)]) == ("other", ["rope_lr0.01_seed5"])
    assert (study.lengths, study.options["t5"]) == ([9, 21], {"num_buckets": 8, "max_distance": 9})
    write_study(here, set=["data.x=1"])
    assert cli.main(["sweep", "2_other.yaml"]) == 2
    assert "1_tiny.yaml:" in (told := capsys.readouterr().err) and "data.x: unknown key" in told
    (here / "1_tiny.yaml").unlink()
    (here / "2_other.yaml").write_text("extends: 1_tiny.yaml")
    assert cli.main(["sweep", "2_other.yaml"]) == 2
    assert "2_other.yaml:1: extends: no file 1_tiny.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, message", [
    (["--seeds", "1"], "--seeds: a study file has its own"),
    (["--encodings", "rope", "--limit", "1"], "--encodings: a study file has its own"),
    (["--only", "rope,fire"], "--only fire: no such encoding here"),
    (["--forget", "rope_seed1"], "--forget rope_seed1: no stored entry"),
])  # fmt: skip
def test_options_of_the_other_kind_are_refused(sweep, capsys, arguments, message):
    assert sweep(*arguments) == 2
    assert message in capsys.readouterr().err


def test_options_of_a_study_are_refused_for_a_recipe(here, capsys):
    assert cli.main(["sweep", STUDY["base"], "--encodings", "rope", "--store", "out"]) == 2
    assert "--store: only a study takes it" in capsys.readouterr().err
    assert cli.main(["sweep", "missing.yaml"]) == 2
    assert "missing.yaml: no such file" in capsys.readouterr().err


def test_a_study_of_ones_own(here, capsys):
    """With a recipe and a plugin beside the file, seeds for all encodings, and the lengths of the recipe."""
    (here / "mine").mkdir()
    (here / "mine" / "near.py").write_text(PLUGIN)
    base = {"base": STUDY["base"], "plugins": ["near.py"], "evaluate": {"lengths": [9]}}
    (here / "mine" / "own.yaml").write_text(yaml.safe_dump(base))
    study = {key: STUDY[key] for key in ("set", "after_training")} | {"base": "own.yaml", "seeds": [3, 4]}
    study |= {"encodings": ["near", "alibi"], "after_training": {"near": [["model.window=5"]]}}
    (here / "mine" / "near.yaml").write_text(yaml.safe_dump(study))
    assert cli.main(["sweep", "mine/near.yaml", "--only", "near", "--limit", "1"]) == 0
    (run,) = stored.read(here / "mine" / "near.parquet")
    assert (run.path, run.seed, len(run.measurements)) == ("near_near_seed3", 3, 2)
    assert [[row.length for row in one.rows] for one in run.measurements] == [[9], [9]]
    capsys.readouterr()
    assert cli.main(["sweep", "mine/near.yaml", "--list"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["  seed 3: missing: alibi", "  seed 4: nothing yet"]
    assert cli.main(["sweep", "mine/near.yaml", "--forget", "near_seed3"]) == 0
    assert stored.read(here / "mine" / "near.parquet") == []


def test_a_study_on_slurm_is_an_array_of_sweeps(sweep, cluster, here):
    assert sweep("--only", "rope", "--jobs", "3", "--slurm=--time=1:00:00") == 0
    (options,) = cluster()
    assert {"--job-name=tiny", "--array=1-3", "--time=1:00:00"} < {*options}
    lines = (here / "runs/tiny_sweep/commands.txt").read_text().splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("-m zoo sweep 1_tiny.yaml --store out --only rope --jobs 3 --jobs=1")


@pytest.mark.slow
@pytest.mark.launch
def test_workers_share_a_study(sweep, here):
    command = [sys.executable, "-m", "zoo", "sweep", "1_tiny.yaml", "--store", "out", "--jobs", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    write_study(here, encodings={0: ["t5", "rope"], 1: ["rope"]}, after_training={})
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {run.path for run in stored.read(here / "out" / "tiny.parquet")} == {
        "tiny_t5_seed0", "tiny_rope_seed0", "tiny_rope_seed1",
    }  # fmt: skip
    assert [file.name for file in here.glob("out/.*.lock")] == [".tiny.parquet.lock"]
