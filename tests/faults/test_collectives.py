"""Collectives of the processes of a run: on the device of the training, and over all processes.

torch's meta device stands in for a GPU: the module says that it is on the CPU while a run is restored. The
answers of a collective are made up.
"""

import csv
import os
import signal
from types import SimpleNamespace

import pytest
import torch
import yaml
from killed_runs import texts

from zoo.errors import RunError
from zoo.training.callbacks import LOSSES, StepLog
from zoo.training.nan_guard import NanGuard

META = torch.device("meta")


class Strategy:
    """`reduce` answers with `answers`, one after the other, and keeps its arguments."""

    def __init__(self, root_device, *answers):
        self.root_device, self.answers, self.asked = root_device, [*answers], []

    def reduce(self, tensor, reduce_op):
        self.asked.append((tensor, reduce_op))
        return torch.tensor(self.answers.pop(0))


def trainer_of(strategy, **more):
    known = {"world_size": 2, "global_rank": 1, "accumulate_grad_batches": 1, "callbacks": [],
             "precision_plugin": None}  # fmt: skip
    return SimpleNamespace(strategy=strategy, **known | more)


def test_restored_losses_are_on_the_device():
    log, module = StepLog(), SimpleNamespace(device=torch.device("cpu"))
    kept = {LOSSES: {"losses": torch.ones(2, 3), "accumulate": 1}}
    log.on_load_checkpoint(trainer_of(Strategy(META)), module, kept)
    assert [loss.device for loss in log.losses] == [META] * 3


NAN = float("nan")


def test_a_reduced_tensor_is_on_the_device():
    """In a run that was just resumed and has no loss of its own yet."""
    strategy = Strategy(META, [NAN, NAN])
    with pytest.raises(RunError, match="the loss is nan at step 0"):
        NanGuard(StepLog(), SimpleNamespace(saved_at=0))._fail(trainer_of(strategy), torch.nn.Linear(2, 2))
    assert len(strategy.asked) == 1 and {asked.device for asked, _ in strategy.asked} == {META}


def loss_rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [row["train/loss"] for row in csv.DictReader(file)]


@pytest.mark.slow
def test_a_checkpoint_between_two_rows_of_the_log(forks, here, mapping):
    """Two processes, interrupted: the next row is the mean over all of its steps."""
    sets = ["trainer.devices=2", "trainer.log_every_n_steps=3", "trainer.max_steps=6",
            "checkpoint.every_n_steps=10"]  # fmt: skip
    (here / "text.yaml").write_text(yaml.safe_dump({**mapping("text"), "name": "text"}))
    command = ["fit", "--recipe", "text.yaml", *(part for text in sets for part in ("--set", text)), "--out"]
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
