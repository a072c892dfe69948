"""The message at the end of a run, also where signals come while it ends."""

import gc
import io
import os
import signal
import sys
from types import SimpleNamespace

import pytest
import torch
import yaml
from lightning.pytorch.strategies import SingleDeviceStrategy

import zoo.training.fit as training
from zoo import cli
from zoo.launch import children
from zoo.launch.children import Children, Supervisor
from zoo.runs.lock import RunLock
from zoo.tasks.task import Task
from zoo.training.fit import fit
from zoo.training.interruption import Interruption
from zoo.training.run_status import RunStatus


def signalled_in(monkeypatch, owner, name, number=signal.SIGTERM):
    """This process gets a signal each time that something is called."""
    real = getattr(owner, name)

    def called(*given, **named):
        os.kill(os.getpid(), number)
        return real(*given, **named)

    monkeypatch.setattr(owner, name, called)


@pytest.fixture
def out_of_memory(monkeypatch):
    real = Task.training_step

    def greedy(self, batch, index):
        if self.global_step == 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, batch, index)

    monkeypatch.setattr(Task, "training_step", greedy)


@pytest.mark.parametrize("owner, name, number", [
    (SingleDeviceStrategy, "teardown", signal.SIGTERM),
    (RunStatus, "_lost_process", signal.SIGINT),
    (RunLock, "release", signal.SIGTERM),
])  # fmt: skip
def test_a_signal_while_it_ends_loses_no_message(
    here, recipe, monkeypatch, out_of_memory, owner, name, number
):
    signalled_in(monkeypatch, owner, name, number)
    before = signal.getsignal(number)
    with pytest.raises(torch.OutOfMemoryError, match=r"after step 4\. The last checkpoint is of step 4"):
        fit(recipe())
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    "owner, name, message",
    [
        (training, "open_data", "interrupted before training began; nothing was written"),
        (training, "make_trainer", "interrupted before training began; nothing was written"),
        (RunLock, "release", "interrupted at step 6; saved; continue: python -m zoo fit "),
        (gc, "collect", "interrupted while it was evaluated; saved; continue: python -m zoo fit "),
    ],
)
def test_where_an_interrupted_run_stands(here, recipe, monkeypatch, owner, name, message):
    signalled_in(monkeypatch, owner, name)
    with pytest.raises(KeyboardInterrupt) as caught:
        fit(recipe())
    assert str(caught.value).startswith(message)
    assert bool([*here.glob("runs/*")]) is not message.endswith("nothing was written")


def test_a_second_ctrl_c_ends_what_hangs_at_its_end(monkeypatch):
    left = []
    monkeypatch.setattr(os, "_exit", left.append)
    interruption = Interruption()
    with interruption.handling():
        interruption.ignore_signals()
        for _ in range(2):
            assert not left
            os.kill(os.getpid(), signal.SIGINT)
    assert left == [130]


class Interrupting(io.StringIO):
    """A stderr during whose writing the process gets signals."""

    def write(self, text):
        if not self.getvalue():
            for number in (signal.SIGTERM, signal.SIGINT):
                os.kill(os.getpid(), number)
        return super().write(text)


def test_signals_are_ignored_until_the_end_is_reported(here, mapping, monkeypatch, out_of_memory):
    (here / "tiny.yaml").write_text(yaml.safe_dump(mapping()))
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    stderr = Interrupting()
    monkeypatch.setattr(sys, "stderr", stderr)
    assert cli.main(["fit", "--recipe", "tiny.yaml"]) == 1
    assert stderr.getvalue().startswith("out of memory: raise ")
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def child(code):
    return SimpleNamespace(returncode=code, poll=lambda: code, kill=lambda: None, wait=lambda: code)


@pytest.mark.parametrize(
    "codes, reports, code, message",
    [
        ([130], True, 130, "interrupted; continue"),
        ([130, -9], True, 1, "process 2 of this run was killed by SIGKILL; continue"),
    ],
)
def test_a_child_that_is_gone_is_reported(monkeypatch, tmp_path, codes, reports, code, message):
    left = []
    monkeypatch.setattr(children.os, "_exit", left.append)
    with (tmp_path / "said").open("w") as file:
        monkeypatch.setattr(sys, "__stderr__", file)
        gone = Children()
        gone.processes = [child(code) for code in codes]
        supervisor = Supervisor(gone, lambda how: f"{how or 'interrupted'}; continue" if reports else None)
        supervisor.end(gone.how_one_failed())
    assert left == [code]
    assert (tmp_path / "said").read_text().strip() == message
