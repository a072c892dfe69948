"""Collectives of the processes of a run."""

import os
import signal

import pytest
import yaml
from killed_runs import texts
from run_files import logged, settings


def loss_rows(folder):
    return [row["train/loss"] for row in logged(folder)]


@pytest.mark.slow
def test_a_checkpoint_between_two_rows_of_the_log(forks, here, mapping):
    """Two processes, interrupted: the next row is the mean over all of its steps."""
    sets = ["trainer.devices=2", "trainer.log_every_n_steps=3", "trainer.max_steps=6",
            "checkpoint.every_n_steps=10"]  # fmt: skip
    (here / "text.yaml").write_text(yaml.safe_dump({**mapping("text"), "name": "text"}))
    command = ["fit", "--recipe", "text.yaml", *settings(*sets), "--out"]
    forks.run([*command, "whole"], here, "whole", 2)
    log = here / "cut.log"
    pids = forks.start([*command, "cut"], here, log, 2, halt=("step", 3))
    forks.wait_for_halt(pids, log)
    os.kill(pids[1], signal.SIGINT)
    forks.let_go(pids, log)
    assert forks.wait(pids) == [130, 130]
    assert "interrupted at step 4; saved; " in texts(log)
    forks.run([*command, "cut", "--resume"], here, "resumed", 2)
    assert loss_rows(here / "cut") == loss_rows(here / "whole") and len(loss_rows(here / "whole")) == 2
