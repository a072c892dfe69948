"""Several processes evaluate together: their collectives, their results, and how they end."""

import contextlib
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
from zoo.launch import team
from zoo.launch.ranks import is_distributed
from zoo.launch.team import Team, alone, device_for, join
from zoo.training.fit import fit

LAUNCH_VARIABLES = (
    "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_NAME", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
    "SLURM_NNODES",
)  # fmt: skip

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node"]

PATIENCE = 240
"""Seconds after which a program counts as hanging; a busy machine needs many of them to import torch."""

# A program whose processes do what its argument says, with the exit codes of the command line.
PROGRAM = """
import os, signal, sys, time
from zoo import cli
from zoo.commands import list_things
from zoo.errors import InputError
from zoo.launch.team import join

def verb(options):
    before = dict(os.environ)
    with join(DEVICES, "cpu") as team:
        what, second = WHAT, team.rank == 1
        if what == "gather":
            every = [team.gather((team.rank, "x" * team.rank)) for _ in range(3)]
            team.barrier()
            if team.rank == 0:
                print(every[0], every[1] == every[2] == every[0], team.size, team.device.type)
        if what == "input" and second:
            raise InputError("this text is not there")
        if what == "bug" and second:
            raise ZeroDivisionError("a bug")
        if what == "killed" and second:
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "interrupted":
            open(f"ready-{team.rank}", "w").close()
            if second:
                time.sleep(SLEEP)
        team.gather(team.rank)
    if team.rank == 0:
        print("ended well", len(os.environ) >= len(before) and "LOCAL_RANK" not in os.environ)

list_things.run = verb
sys.exit(cli.main(["list", "encodings"]))
"""


@pytest.fixture
def environment(monkeypatch):
    for name in LAUNCH_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def start(tmp_path, environment):
    """Start the program; gives the running first process."""

    def start(what, launcher=(), devices=2, sleep=0):
        file = tmp_path / "program.py"
        file.write_text(
            PROGRAM.replace("WHAT", repr(what)).replace("DEVICES", str(devices)).replace("SLEEP", str(sleep))
        )
        return subprocess.Popen(
            [sys.executable, *launcher, str(file)], cwd=tmp_path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    return start


@pytest.fixture
def run(start):
    def run(what, **how):
        process = start(what, **how)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            kill(process)
        return process.returncode, out, err

    return run


def kill(process):
    """All processes of the program, if any is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def test_one_process_needs_no_group(environment):
    with alone(torch.device("cpu")) as one:
        assert (one.rank, one.size, one.device.type) == (0, 1, "cpu")
        assert one.gather({"a": 1}) == [{"a": 1}]
        one.barrier()
    assert not torch.distributed.is_initialized() and not is_distributed()
    assert isinstance(join(1, "cpu"), Team) and not torch.distributed.is_initialized()
    with pytest.raises(ZeroDivisionError), alone(torch.device("cpu")):
        raise ZeroDivisionError


GATHERED = "[(0, ''), (1, 'x')] True 2 cpu\nended well True\n"


@pytest.mark.launch
def test_every_process_gathers_from_each(run):
    assert run("gather") == (0, GATHERED, "")


@pytest.mark.launch
@pytest.mark.parametrize(
    "what, code, message",
    [
        ("input", 2, "process 1: this text is not there\n"),
        ("killed", 1, f"{team.LOST}\n"),
    ],
)
def test_an_error_in_one_process_ends_all_and_is_reported_once(run, what, code, message):
    assert run(what) == (code, "", message)


@pytest.mark.launch
def test_a_fault_keeps_its_traceback_and_ends_all(run):
    code, out, err = run("bug")
    assert code == 1 and out == ""
    assert err.count("Traceback") == 1 and "process 1: ZeroDivisionError: a bug" in err


@pytest.mark.launch
def test_an_interruption_leaves_no_process(start, tmp_path):
    process = start("interrupted", sleep=2 * PATIENCE)
    try:
        deadline = time.monotonic() + PATIENCE
        while not all((tmp_path / f"ready-{rank}").exists() for rank in (0, 1)):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        # Returns once no process holds the pipes: all have ended.
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        kill(process)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


def test_slurm_has_started_the_processes(environment, monkeypatch):
    assert not is_distributed()
    # A batch script of SLURM is one process, however many tasks it may start.
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert not is_distributed()
    for name, value in {"SLURM_STEP_NUM_TASKS": "4", "SLURM_NNODES": "2", "SLURM_PROCID": "1"}.items():
        monkeypatch.setenv(name, value)
    assert team.find_launcher() == ("slurm", 2, 2)
    # The first process alone reports it.
    with pytest.raises(SystemExit) as left:
        join(3, "cpu")
    assert left.value.code == 2
    monkeypatch.setenv("SLURM_PROCID", "0")
    with pytest.raises(InputError, match="--devices 3: slurm has started 2 processes on this machine"):
        join(3, "cpu")


def test_more_devices_than_there_are_is_wrong_input(environment, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InputError, match="--devices 2: GPUs on this machine: 1"):
        join(2, "auto")
    assert device_for("gpu", 1) == torch.device("cuda", 0)
    assert device_for("cpu", 1) == torch.device("cpu")


@pytest.mark.parametrize("number", ["0", "1.5"])
def test_devices_are_a_whole_number_above_zero(number, capsys):
    with pytest.raises(SystemExit) as left:
        main(["evaluate", "runs/x", f"--devices={number}"])
    assert left.value.code == 2 and "a whole number above 0 is needed" in capsys.readouterr().err


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
