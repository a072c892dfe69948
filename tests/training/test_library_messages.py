"""A data worker that dies."""

import pytest

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


@pytest.mark.slow
def test_a_killed_worker_is_reported(zoo_command, here):
    (here / "dying.py").write_text(DYING)
    sets = ["data.workers=2", "trainer.max_steps=400"]
    arguments = ["fit", "--recipe", "max_index.yaml", *[part for text in sets for part in ("--set", text)]]
    done = zoo_command(*arguments, launcher=(here / "dying.py",))
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith("a data worker has died after step ")
    assert "Traceback" not in done.stderr
