"""A run folder that is removed or moved during training: one message, and nothing written there."""

import shutil

import pytest
import yaml

from zoo import cli
from zoo.tasks.task import Task
from zoo.training import finish
from zoo.training.checkpoints import AtomicCheckpointIO

LOG = ["trainer.log_every_n_steps=1", "checkpoint.every_n_steps=100", "logging=[csv, tensorboard]"]
CHECKPOINT = ["trainer.log_every_n_steps=100", "checkpoint.every_n_steps=1", "logging=[]"]


@pytest.fixture
def train(here, mapping, capfd):
    """`zoo fit` of six steps in this process; its exit code, and the lines of its stderr."""
    (here / "max_index.yaml").write_text(yaml.safe_dump({**mapping(), "name": "max_index"}))

    def train(*sets):
        words = ["fit", "--recipe", "max_index.yaml", "--set", "trainer.enable_progress_bar=false"]
        code = cli.main([*words, *(word for one in sets for word in ("--set", one))])
        return code, [line for line in capfd.readouterr().err.splitlines() if line]

    return train


def at_step(monkeypatch, step, act):
    """Do something in the training step after so many optimizer steps."""
    real = Task.training_step

    def acts(self, batch, index):
        if self.global_step == step:
            act()
        return real(self, batch, index)

    monkeypatch.setattr(Task, "training_step", acts)


def assert_reported(code, lines):
    assert code == 1
    assert lines == ["runs/max_index: the run folder was removed or moved; nothing more can be saved"]


@pytest.mark.parametrize("sets, step", [(LOG, 3), (CHECKPOINT, 0)], ids=["log", "checkpoint"])
def test_a_removed_folder_is_reported_once_and_stays_away(here, train, monkeypatch, sets, step):
    at_step(monkeypatch, step, lambda: shutil.rmtree(here / "runs" / "max_index"))
    assert_reported(*train(*sets))
    assert [*(here / "runs").iterdir()] == []


def test_removed_while_a_checkpoint_is_written(here, train, monkeypatch):
    real = AtomicCheckpointIO.save_checkpoint

    def removed(self, *given, **named):
        shutil.rmtree(here / "runs" / "max_index")
        return real(self, *given, **named)

    monkeypatch.setattr(AtomicCheckpointIO, "save_checkpoint", removed)
    assert_reported(*train(*CHECKPOINT))
    assert [*(here / "runs").iterdir()] == []


def test_removed_before_it_is_evaluated(here, train, monkeypatch):
    real = finish.read_checkpoint

    def removed(file):
        shutil.rmtree(here / "runs" / "max_index")
        return real(file)

    monkeypatch.setattr(finish, "read_checkpoint", removed)
    assert_reported(*train(*CHECKPOINT))
    assert [*(here / "runs").iterdir()] == []


def test_removed_while_it_is_evaluated(here, train, monkeypatch):
    real = finish.measure

    def removed(*given, **named):
        shutil.rmtree(here / "runs" / "max_index")
        return real(*given, **named)

    monkeypatch.setattr(finish, "measure", removed)
    assert_reported(*train(*CHECKPOINT))
    assert [*(here / "runs").iterdir()] == []
