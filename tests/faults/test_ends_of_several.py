"""Two processes of a run end together: one message, of what was first, and nobody is left."""

import os
import signal
import subprocess
import sys

import pytest
from killed_runs import ROOT, alive_in_group, endless, is_training, kill_group, last_line, texts, wait_for

pytestmark = pytest.mark.slow

TWO = ["trainer.devices=2", "trainer.strategy=ddp", "checkpoint.every_n_steps=2"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]

# The command line, in which something is changed; `rank` is the process's own.
PROGRAM = """
import os, sys, time
from pathlib import Path
rank = int(os.environ.get("LOCAL_RANK", 0))
{change}
from zoo.cli import main
sys.exit(main(sys.argv[1:]))
"""
HALTED_CHILD = """
import zoo.training.fit as training
if rank:
    def halting(recipe):
        Path("halted").touch()
        time.sleep(600)
    training.open_data = halting
"""
SLOW_TEARDOWN = """
import lightning.pytorch as pl
if rank == 0:
    real = pl.Trainer._teardown
    def slow(self):
        time.sleep(8)
        return real(self)
    pl.Trainer._teardown = slow
"""
LOST = """
import signal
from zoo.tasks.task import Task
step = Task.training_step
def lost(self, batch, index):
    if self.global_step == 4:
        # What torchrun sends to the rest may come first.
        os.kill(os.getpid(), signal.SIGKILL if rank else signal.SIGTERM)
    return step(self, batch, index)
Task.training_step = lost
"""
SLOW_TO_TELL = """
import torch
from zoo.tasks.task import Task
from zoo.training.run_status import RunStatus
step, cause = Task.training_step, RunStatus._cause
def greedy(self, batch, index):
    if self.global_step == 4 and rank:
        torch.empty(2**50)
    return step(self, batch, index)
def slow(*given):
    time.sleep(3)
    return cause(*given)
Task.training_step, RunStatus._cause = greedy, slow
"""


@pytest.fixture
def launched(here, mapping):
    """Start an endless run of two processes with a change, in a group of its own; leaves nothing of it."""
    groups = []

    def launched(change, launcher=()):
        script = here / "changed.py"
        script.write_text(PROGRAM.format(change=change))
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK")}
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        with (here / "log.0").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *launcher, str(script), *endless(mapping, here, *TWO)], cwd=here,
                stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
            )  # fmt: skip
        groups.append(process.pid)
        return process

    yield launched
    for group in groups:
        kill_group(group)


def test_a_child_that_still_prepares_ends_with_its_parent(launched, here):
    process = launched(HALTED_CHILD)
    assert wait_for((here / "halted").exists, 120), texts(here / "log")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert wait_for(lambda: not alive_in_group(process.pid), 10)


def test_a_slow_end_of_the_first_process_is_no_loss_of_the_second(launched, here):
    process = launched(SLOW_TEARDOWN)
    assert wait_for(is_training(here), 120), texts(here / "log")
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130, texts(here / "log")
    text = texts(here / "log")
    assert last_line(text).startswith("interrupted at step ") and "exit code" not in text


def test_the_process_that_reports_is_not_ended_before(launched, here):
    process = launched(SLOW_TO_TELL, TORCHRUN)
    assert process.wait(120)
    text = texts(here / "log")
    assert text.count("process 1: out of memory after step 4") == 1, text
    assert "interrupted" not in text and "is gone" not in text


def test_a_process_that_torchrun_has_lost_is_reported(launched, here):
    process = launched(LOST, TORCHRUN)
    assert process.wait(120)
    text = texts(here / "log")
    reported = "another process of this run is gone; the last checkpoint is of step 4; continue: "
    assert text.count(reported) == 1, text
    assert "interrupted" not in text
