"""The message at the end of a run, also where signals come while it ends."""

import gc
import io
import os
import signal
import sys

import pytest
import torch
import torch.distributed as dist
import yaml
from lightning.pytorch.strategies import SingleDeviceStrategy

import zoo.training.fit as training
from zoo import cli
from zoo.reports.fit import fit
from zoo.runs.folder import RunLock
from zoo.training.module import TaskModule
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
    real = TaskModule.training_step

    def greedy(self, batch, index):
        if self.global_step == 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, batch, index)

    monkeypatch.setattr(TaskModule, "training_step", greedy)


@pytest.mark.parametrize("owner, name, number", [
    (SingleDeviceStrategy, "teardown", signal.SIGTERM),
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


@pytest.mark.parametrize("owner, name, message", [
    (training, "open_data", "interrupted before training began; nothing was written"),
    (training, "make_trainer", "interrupted before training began; nothing was written"),
    (RunLock, "release", "interrupted at step 6; saved; continue: python -m zoo fit "),
    (gc, "collect", "interrupted while it was evaluated; saved; continue: python -m zoo fit "),
])  # fmt: skip
def test_where_an_interrupted_run_stands(here, recipe, monkeypatch, owner, name, message):
    signalled_in(monkeypatch, owner, name)
    with pytest.raises(KeyboardInterrupt) as caught:
        fit(recipe())
    assert str(caught.value).startswith(message)
    assert bool([*here.glob("runs/*")]) is not message.endswith("nothing was written")


class Interrupting(io.StringIO):
    """A stderr during whose writing the process gets signals."""

    def write(self, text):
        if not self.getvalue():
            os.kill(os.getpid(), signal.SIGTERM)
        return super().write(text)


def test_signals_are_ignored_until_the_end_is_reported(here, mapping, monkeypatch, out_of_memory):
    (here / "tiny.yaml").write_text(yaml.safe_dump(mapping()))
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    stderr = Interrupting()
    monkeypatch.setattr(sys, "stderr", stderr)
    assert cli.main(["fit", "--recipe", "tiny.yaml"]) == 1
    assert stderr.getvalue().startswith("out of memory: raise ")
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_signal_while_the_processes_agree_counts_at_the_next_step(monkeypatch):
    status = RunStatus()
    status.training, status.group = True, object()
    monkeypatch.setattr(dist, "all_reduce", lambda *of: status._handle(signal.SIGTERM, None))
    status._agree()
    assert not status.due  # the other processes do not know of it yet
    monkeypatch.setattr(dist, "all_reduce", lambda *of: None)
    status._agree()
    assert status.due
