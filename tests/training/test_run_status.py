"""Where a run stands that a signal ends, and signals while processes agree."""

import gc
import os
import signal

import pytest
import torch.distributed as dist

import zoo.training.fit as training
from zoo.reports.fit import fit
from zoo.runs.folder import RunLock
from zoo.training.run_status import RunStatus


def signalled_in(monkeypatch, owner, name, number=signal.SIGTERM):
    """This process gets a signal each time that something is called."""
    real = getattr(owner, name)

    def called(*given, **named):
        os.kill(os.getpid(), number)
        return real(*given, **named)

    monkeypatch.setattr(owner, name, called)


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


def test_a_signal_while_the_processes_agree_counts_at_the_next_step(monkeypatch):
    status = RunStatus()
    status.training, status.group = True, object()
    monkeypatch.setattr(dist, "all_reduce", lambda *of: status._handle(signal.SIGTERM, None))
    status._agree()
    assert not status.due  # the other processes do not know of it yet
    monkeypatch.setattr(dist, "all_reduce", lambda *of: None)
    status._agree()
    assert status.due
