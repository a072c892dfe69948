"""What the processes of a run tell each other goes over the device that they train on, and is all of theirs.

No GPU is needed: torch's meta device stands in for one, as another than the CPU that the module says it is on
while a run is restored; and what a collective has from other processes is made up.
"""

import csv
from types import SimpleNamespace

import pytest
import torch

from zoo.errors import RunError
from zoo.training.callbacks import LOSSES, StepLog
from zoo.training.nan_guard import NanGuard

META = torch.device("meta")


class Strategy:
    """`reduce` answers with `answers`, one after the other, and keeps what it was asked about."""

    def __init__(self, root_device, *answers):
        self.root_device, self.answers, self.asked = root_device, [*answers], []

    def reduce(self, tensor, reduce_op):
        self.asked.append((tensor, reduce_op))
        return torch.tensor(self.answers.pop(0))


def trainer_of(strategy, **more):
    known = {"world_size": 2, "global_rank": 1, "accumulate_grad_batches": 1, "callbacks": [],
             "precision_plugin": None}  # fmt: skip
    return SimpleNamespace(strategy=strategy, **known | more)


def test_restored_losses_are_where_those_that_follow_will_be():
    log, module = StepLog(64), SimpleNamespace(device=torch.device("cpu"))
    kept = {LOSSES: {"losses": torch.ones(2, 3), "accumulate": 1}}
    log.on_load_checkpoint(trainer_of(Strategy(META)), module, kept)
    assert [loss.device for loss in log.losses] == [META] * 3


NAN, NEVER = float("nan"), float("inf")


def test_all_that_is_asked_of_the_others_is_on_the_device():
    """Of a run that was just resumed: it has no loss of its own yet."""
    strategy = Strategy(META, [NAN, NAN], [NEVER, NEVER], [0.0, 0.0])
    with pytest.raises(RunError, match="the loss is nan at step 0"):
        NanGuard()._fail(trainer_of(strategy), torch.nn.Linear(2, 2))
    assert len(strategy.asked) == 3 and {asked.device for asked, _ in strategy.asked} == {META}


def test_a_weight_is_named_that_is_wrong_in_another_process():
    """Of a weight in shards a process sees its own only."""
    strategy = Strategy(torch.device("cpu"), [1.0, 1.0], [NEVER, NEVER], [0.0, 1.0])
    with pytest.raises(RunError, match="the weights bias are not finite after step 0"):
        NanGuard()._fail(trainer_of(strategy), torch.nn.Linear(2, 2))
    assert strategy.asked[2][0].tolist() == [0.0, 0.0] and strategy.asked[2][1] == "max"


def test_a_loss_is_dated_that_was_wrong_in_another_process():
    finite = NanGuard()
    finite.step, finite.last = 6, torch.ones(2)
    strategy = Strategy(torch.device("cpu"), [NAN, 1.0], [5.0, NEVER], [0.0, 0.0])
    with pytest.raises(
        RunError, match=r"nan at step 6 .*the first that was not finite was the loss of step 5"
    ):
        finite._fail(trainer_of(strategy), torch.nn.Linear(2, 2))


# A command as a user gives it. Where asked, Ctrl-C comes in the fourth step, and all know of it in the fifth;
# or a share of a weight is lost.
PROGRAM = """
import os
import signal
import sys
import torch
from zoo.tasks.task import Task
real, clip = Task.training_step, Task.configure_gradient_clipping
asked, rank = os.environ.get("ASKED"), os.environ.get("LOCAL_RANK", "0")
def step(self, batch, index):
    if asked == "interrupt" and self.global_step == 3 and rank == "0":
        os.kill(os.getpid(), signal.SIGINT)
    return real(self, batch, index)
def clipped(self, *given, **named):
    clip(self, *given, **named)
    if asked == "lose" and self.global_step == 3 and rank == "1":
        with torch.no_grad():
            dict(self.named_parameters())["model.final_norm.weight"].to_local().fill_(float("inf"))
Task.training_step, Task.configure_gradient_clipping = step, clipped
from zoo.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def two(zoo_command, here, monkeypatch):
    """Run `zoo fit` in two processes; `asked` is what is to happen."""
    (here / "program.py").write_text(PROGRAM)

    def two(asked, *sets, more=()):
        monkeypatch.setenv("ASKED", asked)
        arguments = [part for text in ("trainer.devices=2", *sets) for part in ("--set", text)]
        return zoo_command("fit", "--recipe", "text.yaml", *arguments, *more, launcher=("program.py",))

    return two


@pytest.mark.slow
def test_a_checkpoint_between_two_rows_of_the_log(two, here):
    """Two processes; it is written without a word, and the next row is the mean over all of its steps."""
    sets = ["trainer.log_every_n_steps=3", "trainer.max_steps=6", "checkpoint.every_n_steps=10"]

    def rows(name):
        with (here / name / "metrics.csv").open(newline="") as file:
            return [row["train/loss"] for row in csv.DictReader(file)]

    whole = two("nothing", *sets, more=("--out", "whole"))
    assert whole.returncode == 0, whole.stderr
    stopped = two("interrupt", *sets, more=("--out", "cut"))
    assert stopped.returncode == 130
    message = [line for line in stopped.stderr.splitlines() if line]
    assert len(message) == 2 and message[1].startswith("interrupted at step 5; saved; "), stopped.stderr
    resumed = two("nothing", *sets, more=("--out", "cut", "--resume"))
    assert resumed.returncode == 0 and resumed.stderr == whole.stderr == "", resumed.stderr
    assert rows("cut") == rows("whole") and len(rows("whole")) == 2


@pytest.mark.slow
def test_a_weight_that_is_lost_in_one_share_is_named(two):
    sets = ["trainer.strategy=fsdp", "checkpoint.every_n_steps=4", "trainer.log_every_n_steps=100"]
    lost = two("lose", *sets)
    assert lost.returncode == 1, lost.stderr
    assert "the weights model.final_norm.weight are not finite after step 4" in lost.stderr
