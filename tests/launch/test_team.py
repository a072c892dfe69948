"""Several processes evaluate together: their collectives, their results, and how they end."""

import json
import os
import shutil
import signal

import pytest
import torch
from killed_runs import alive_in_group, texts, wait_for

from zoo.cli import main
from zoo.errors import InputError
from zoo.launch.team import alone, device_for, join
from zoo.reports.fit import fit

LAUNCH_VARIABLES = (
    "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_NAME", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
    "SLURM_NNODES",
)  # fmt: skip

# Processes that do what WHAT says, as a verb of the command line.
PROGRAM = """
import os
from zoo.commands import list_things
from zoo.errors import InputError
from zoo.launch.team import join

def verb(options):
    with join(2, "cpu") as team:
        what, second = os.environ["WHAT"], team.rank == 1
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
"""


@pytest.fixture
def environment(monkeypatch):
    """That of a process without a launcher."""
    for name in LAUNCH_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(forks, here):
    """Exit codes and output of two processes."""

    def run(what):
        (here / "program.py").write_text(PROGRAM)
        pids = forks.start(["list"], here, here / "log", 2, patch=here / "program.py", WHAT=what)
        return forks.wait(pids), texts(here / "log")

    return run


def test_one_process_needs_no_group(environment):
    with alone(torch.device("cpu")) as one:
        assert (one.rank, one.size, one.device.type) == (0, 1, "cpu")
        assert one.gather({"a": 1}) == [{"a": 1}]
        one.barrier()
    assert join(1, "cpu").size == 1 and not torch.distributed.is_initialized()


def test_every_process_gathers_from_each(run):
    assert run("gather") == ([0, 0], "[(0, ''), (1, 'x')] True 2 cpu\n")


@pytest.mark.parametrize("what, code, message", [("input", 2, "this text is missing"), ("bug", 1, "a bug")])
def test_an_error_in_one_process_ends_all(run, what, code, message):
    codes, text = run(what)
    assert codes == [1, code]
    assert message in text and "another process of this run has ended" in text


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


def rows_of(folder):
    times = ("tokens_per_second", "peak_memory_mb", "machine")
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


SPLIT = ["--set", "evaluate.split_sequence=true"]


@pytest.mark.slow
@pytest.mark.parametrize("kind, protocols, lengths, more, processes", [
    # At the longest length there are fewer batches than processes.
    ("text", "nonoverlapping,sliding,fixed_targets,per_position,repeats", "16,48,240", ["--devices=2"], 1),
    ("max_index", "accuracy", "16,48", [], 3),
    # Together they compute each sequence.
    ("text", "nonoverlapping,sliding,fixed_targets,per_position,repeats,prompts", "16,48,240", SPLIT, 2),
    ("masked", "nonoverlapping", "16,240", SPLIT, 3),
    ("max_index", "accuracy", "16,48", SPLIT, 2),
])  # fmt: skip
def test_several_processes_measure_what_one_does(
    forks, here, recipe, environment, unmeasured, kind, protocols, lengths, more, processes
):
    """Processes that the command itself starts, and those of a launcher."""
    folder = fit(recipe(kind, "evaluate.batch_tokens=64", "evaluate.samples=24"), out=here / kind)
    how = ("evaluate", kind, "--protocol", protocols, "--lengths", lengths)
    assert main(how) == 0
    one = rows_of(folder)
    assert {row["protocol"] for row in one} == set(protocols.split(","))
    assert any("note" not in row for row in one)
    shutil.rmtree(folder / "evaluation")
    (here / "apart.py").write_text("import os; os.dup2(os.open('stderr', os.O_WRONLY | os.O_CREAT), 2)")
    text = forks.run([*how, *more], here, "several", processes, here / "apart.py")
    about = (here / "stderr").read_text().splitlines()  # of a text its documents, once for all processes
    assert len(about) == (kind != "max_index") and all("documents: " in line for line in about)
    assert text.count("results, tables, plots and a page (index.html): ") == 1
    assert_same(one, rows_of(folder))


# The second process has too little memory for one length.
NO_MEMORY = """
import os
import torch
from zoo.models.transformer import Block

forward = Block.forward

def limited(self, x, *rest):
    if os.environ["RANK"] == "1" and x.shape[1] >= 40:
        raise torch.OutOfMemoryError("too little")
    return forward(self, x, *rest)

Block.forward = limited
"""


@pytest.mark.slow
def test_one_process_without_memory_is_a_note_and_the_rest_is_measured(forks, here, recipe, unmeasured):
    folder = fit(recipe("text"), out=here / "run")
    (here / "patch.py").write_text(NO_MEMORY)
    how = ["evaluate", "run", "--protocol", "per_position", "--lengths", "16,240", *SPLIT]
    forks.run(how, here, "several", 2, here / "patch.py")
    rows = rows_of(folder)
    assert ["out of memory" in row["note"] for row in rows if "note" in row] == [True]
    assert any(row["length"] == 16 and "note" not in row for row in rows)


def test_one_device_is_one_process(here, recipe, environment, unmeasured, monkeypatch):
    """In a task that SLURM has started beside another."""
    folder = fit(recipe("max_index"), out=here / "run")
    for name, value in {"SLURM_STEP_NUM_TASKS": "2", "SLURM_NNODES": "1", "SLURM_PROCID": "1"}.items():
        monkeypatch.setenv(name, value)
    assert main(["evaluate", "run", "--lengths", "16", "--devices", "1"]) == 0
    assert rows_of(folder)[0]["length"] == 16


# Each process says that it begins to score.
BEGUN = """
import os
import zoo.evaluation.measure as measure

restart = measure.restart_peak_memory
measure.restart_peak_memory = lambda device: [open("begun" + os.environ["RANK"], "w"), restart(device)]
"""


@pytest.mark.slow
def test_an_interrupted_evaluation_leaves_no_process(forks, here, recipe, unmeasured):
    fit(recipe("text"), out=here / "run")
    (here / "begun.py").write_text(BEGUN)
    command = ["evaluate", "run", "--lengths", "16,32,64,128", "--protocol", "sliding"]
    pids = forks.start([*command, "--set", "evaluate.stride=0.01"], here, here / "log", 2,
                       patch=here / "begun.py")  # fmt: skip
    assert wait_for(lambda: len([*here.glob("begun?")]) == 2), texts(here / "log")
    os.killpg(pids[0], signal.SIGINT)
    assert forks.wait(pids) == [130, 130]
    assert texts(here / "log").count("interrupted") == 1 and not alive_in_group(pids[0])
