"""Several processes evaluate together: their collectives, their results, and how they end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

from zoo.cli import main
from zoo.errors import InputError
from zoo.launch.team import alone, device_for, join
from zoo.training.fit import fit

LAUNCH_VARIABLES = (
    "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_NAME", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
    "SLURM_NNODES",
)  # fmt: skip

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node"]

# Processes that do what WHAT says, with the exit codes of the command line.
PROGRAM = """
import os, signal, sys, time
from zoo import cli
from zoo.commands import list_things
from zoo.errors import InputError
from zoo.launch.team import join

def verb(options):
    with join(2, "cpu") as team:
        what, second = WHAT, team.rank == 1
        if what == "gather":
            every = [team.gather((team.rank, "x" * team.rank)) for _ in range(3)]
            team.barrier()
            if team.rank == 0:
                print(every[0], every[1] == every[2] == every[0], team.size, team.device.type)
        if what == "input" and second:
            raise InputError("this text is missing")
        if what == "bug" and second:
            raise ZeroDivisionError("a bug")
        team.gather(team.rank)

list_things.run = verb
sys.exit(cli.main(["list", "encodings"]))
"""


@pytest.fixture
def environment(monkeypatch):
    for name in LAUNCH_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def run(tmp_path, environment):
    def run(what):
        file = tmp_path / "program.py"
        file.write_text(PROGRAM.replace("WHAT", repr(what)))
        return subprocess.run(
            [sys.executable, *TORCHRUN, "2", str(file)], cwd=tmp_path, env=environment, text=True,
            capture_output=True, timeout=240,
        )  # fmt: skip

    return run


def test_one_process_needs_no_group(environment):
    with alone(torch.device("cpu")) as one:
        assert (one.rank, one.size, one.device.type) == (0, 1, "cpu")
        assert one.gather({"a": 1}) == [{"a": 1}]
        one.barrier()
    assert join(1, "cpu").size == 1 and not torch.distributed.is_initialized()


@pytest.mark.launch
def test_every_process_gathers_from_each(run):
    done = run("gather")
    assert (done.returncode, done.stdout) == (0, "[(0, ''), (1, 'x')] True 2 cpu\n")


@pytest.mark.launch
@pytest.mark.parametrize("what, message", [("input", "this text is missing"), ("bug", "a bug")])
def test_an_error_in_one_process_ends_all(run, what, message):
    done = run(what)
    assert done.returncode and not done.stdout and message in done.stderr


def test_slurm_has_started_the_processes(environment, monkeypatch):
    for name, value in {"SLURM_STEP_NUM_TASKS": "4", "SLURM_NNODES": "2", "SLURM_PROCID": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="--devices 3: processes on this machine: slurm has started 2"):
        join(3, "cpu")


def test_more_devices_than_there_are_is_wrong_input(environment, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="--devices 2: GPUs on this machine: 1"):
        join(2, "auto")
    assert device_for("gpu", 1) == torch.device("cuda", 0)
    assert device_for("cpu", 1) == torch.device("cpu")


@pytest.mark.parametrize("number", ["0", "1.5"])
def test_devices_are_a_whole_number_above_zero(number, capsys):
    with pytest.raises(SystemExit) as left:
        main(["evaluate", "runs/x", f"--devices={number}"])
    assert left.value.code == 2 and "a whole number" in capsys.readouterr().err


def rows_of(folder):
    times = ("tokens_per_second", "peak_memory_mb")
    rows = json.loads((folder / "evaluation" / "lengths.json").read_text())
    return [{key: value for key, value in row.items() if key not in times} for row in rows]


def assert_same(one, two):
    assert len(one) == len(two) > 0
    for left, right in zip(one, two, strict=True):
        assert left.keys() == right.keys()
        for key, value in left.items():
            if isinstance(value, float):
                assert right[key] == pytest.approx(value, rel=1e-6, abs=1e-12), key
            else:
                assert right[key] == value, key


@pytest.mark.slow
@pytest.mark.parametrize("kind, protocols, lengths, more, launcher", [
    # At the longest length there are fewer batches than processes.
    ("text", "nonoverlapping,sliding,fixed_targets,per_position", "16,48,240", ["--devices=2"], []),
    ("max_index", "accuracy", "16,48", [], [*TORCHRUN, "3"]),
])  # fmt: skip
def test_several_processes_measure_what_one_does(
    zoo_command, here, recipe, environment, unmeasured, kind, protocols, lengths, more, launcher
):
    folder = fit(recipe(kind, "evaluate.batch_tokens=64"), out=here / kind)
    how = ("evaluate", kind, "--protocol", protocols, "--lengths", lengths)
    assert main(how) == 0
    one = rows_of(folder)
    assert {row["protocol"] for row in one} == set(protocols.split(","))
    assert any("note" not in row for row in one)
    shutil.rmtree(folder / "evaluation")
    done = zoo_command(*how, *more, launcher=[*launcher, "-m", "zoo"])
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.count("results, tables, plots and a page (index.html): ") == 1
    assert_same(one, rows_of(folder))


@pytest.mark.slow
def test_an_interrupted_evaluation_leaves_no_process(here, recipe, environment, unmeasured):
    fit(recipe("text"), out=here / "run")
    command = ["-m", "zoo", "evaluate", "run", "--devices", "2", "--lengths", "16,32,64,128", "--protocol"]
    process = subprocess.Popen(
        [sys.executable, *command, "sliding", "--set", "evaluate.stride=0.01"],
        env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(12)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)  # returns when no process holds the pipe
    assert process.returncode == 130 and stderr.count("interrupted") <= 1
