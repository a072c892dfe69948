"""Out of memory, a dead data worker, a mistake in a plugin: reported with the last checkpoint."""

import os
import re
import signal

import pytest
import torch
import yaml

from zoo import cli
from zoo.data.max_index import MaxIndex
from zoo.errors import RunError
from zoo.reports.fit import fit
from zoo.training.module import TaskModule

pytestmark = pytest.mark.usefixtures("unmeasured")


def test_out_of_memory_is_one_line_of_advice(here, mapping, monkeypatch, capsys):
    real = TaskModule.training_step

    def greedy(self, batch, index):
        if self.global_step == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, batch, index)

    monkeypatch.setattr(TaskModule, "training_step", greedy)
    (here / "tiny.yaml").write_text(yaml.safe_dump(mapping()))
    assert cli.main(["fit", "tiny.yaml", "--set", "checkpoint.every_n_steps=2"]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "memory" in line]
    assert line.startswith("out of memory: raise trainer.accumulate_grad_batches")
    assert "The last checkpoint is of step 2; continue: " in line


def test_a_data_worker_that_dies_is_reported(here, recipe, monkeypatch):
    real = MaxIndex.batch

    def batch(self, indices):
        if torch.utils.data.get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, indices)

    monkeypatch.setattr(MaxIndex, "batch", batch)
    with pytest.raises(RunError, match=r"DataLoader worker .* out of memory\? Lower data\.workers"):
        fit(recipe("max_index", "data.workers=1"))


def test_a_mistake_in_a_plugin_keeps_its_traceback_and_has_the_command_that_continues(
    here, recipe, monkeypatch
):
    real = TaskModule.training_step

    def mistaken(self, batch, index):
        if self.global_step == 4:
            raise ZeroDivisionError("of the plugin's own")
        return real(self, batch, index)

    monkeypatch.setattr(TaskModule, "training_step", mistaken)
    with pytest.raises(ZeroDivisionError) as caught:
        fit(recipe())
    (note,) = caught.value.__notes__
    assert re.fullmatch(
        r"This was after step 4\. The last checkpoint is of step 4; continue: .* --resume", note
    )
