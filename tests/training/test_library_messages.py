"""What the console does not show, and that all else is shown."""

import sys
from types import SimpleNamespace

import pytest

from zoo.training.library_messages import hide_library_messages

# The command, with a data worker that is killed once its batches are waited for.
DYING = """
import os
import signal
import sys
import torch
from zoo.data.max_index import MaxIndex
real, count = MaxIndex.batch, 0
def batch(self, indices):
    worker = torch.utils.data.get_worker_info()
    global count
    count += 1
    if worker is not None and worker.id == 1 and count == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, indices)
MaxIndex.batch = batch
from zoo.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def shown(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    return shown


def test_of_what_cannot_be_raised_only_a_dead_worker_is_hidden(shown):
    hide_library_messages()
    once = sys.unraisablehook
    hide_library_messages()
    assert sys.unraisablehook is once
    dead = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")
    others = [RuntimeError("x"), ValueError("DataLoader worker"), None]
    for error in (dead, *others):
        sys.unraisablehook(SimpleNamespace(exc_value=error, object=print))
    assert [one.exc_value for one in shown] == others


@pytest.mark.slow
def test_a_killed_worker_is_reported_in_one_line(zoo_command, here):
    (here / "dying.py").write_text(DYING)
    sets = ["data.workers=2", "trainer.max_steps=400"]
    arguments = ["fit", "--recipe", "max_index.yaml", *[part for text in sets for part in ("--set", text)]]
    done = zoo_command(*arguments, launcher=(here / "dying.py",))
    assert done.returncode == 1, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line]
    assert line.startswith("a data worker has died after step ")
