"""A step that is accumulated from several batches is saved whole or not at all."""

import os
import shlex
import signal

import pytest
import torch
from killed_runs import assert_same_checkpoint, rows_of, saved_step
from lightning.pytorch.callbacks import Timer

from zoo import cli
from zoo.reports.fit import fit
from zoo.training.module import TaskModule

LAST = "checkpoints/last.ckpt"
PARTS = ["trainer.accumulate_grad_batches=4", "model.dropout=0.1", "trainer.max_steps=7",
         "checkpoint.every_n_steps=100", "trainer.log_every_n_steps=1"]  # fmt: skip


def trained(folder):
    return [{key: value for key, value in row.items() if key != "val/loss"} for row in rows_of(folder)]


@pytest.mark.slow
def test_a_run_whose_time_is_up_within_a_step_finishes_it(here, recipe, monkeypatch, unmeasured):
    begun = []
    real = TaskModule.training_step

    def counted(self, batch, index):
        begun.append(index)
        return real(self, batch, index)

    whole = fit(recipe("text", *PARTS), out=here / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(TaskModule, "training_step", counted)
        patch.setattr(Timer, "time_elapsed", lambda *given: 100.0 if len(begun) >= 10 else 0.0)
        fit(recipe("text", *PARTS, "trainer.max_time=00:00:01:00"), out=here / "cut")
    assert len(begun) == 12 and saved_step(here / "cut") == 3
    resumed = fit(recipe("text", *PARTS), out=here / "cut", resume=True)
    assert_same_checkpoint(whole / LAST, resumed / LAST)
    # But for the validation at the end of its time.
    assert trained(whole) == trained(resumed) and len(trained(whole)) == 7


def test_a_run_that_is_interrupted_in_a_validation_within_a_step_finishes_it(
    here, recipe, monkeypatch, unmeasured
):
    real, sent = TaskModule.validation_step, []

    def interrupted(self, batch, index):
        if not sent and self.global_step == 2:
            sent.append(index)
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, batch, index)

    # A fraction of an epoch: after 10 of 192 batches, within the third step.
    parts = recipe("text", *PARTS, "trainer.val_check_interval=0.054")
    whole = fit(parts, out=here / "whole")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as caught:
        patch.setattr(TaskModule, "validation_step", interrupted)
        fit(parts, out=here / "cut")
    assert str(caught.value).startswith("interrupted at step 3; saved; continue: ")
    assert sent and saved_step(here / "cut") == 3
    assert cli.main(shlex.split(str(caught.value).partition("continue: ")[2])[3:]) == 0
    assert_same_checkpoint(whole / LAST, here / "cut" / LAST)
    assert rows_of(whole) == rows_of(here / "cut")


@pytest.mark.slow
def test_another_number_of_parts_begins_with_a_full_step(here, recipe, unmeasured):
    """The batches that the checkpoint has counted were of another size."""
    sets = ["trainer.max_steps=7", "optimizer.schedule=constant", "trainer.log_every_n_steps=1"]
    expected = torch.load(fit(recipe("text", *sets), out=here / "whole") / LAST, weights_only=True)
    parts = "trainer.accumulate_grad_batches="
    for before, after in ((1, 4), (4, 2)):
        folder = here / f"cut{before}"
        fit(recipe("text", *sets, f"{parts}{before}", "trainer.max_steps=3"), out=folder)
        fit(recipe("text", *sets, f"{parts}{after}"), out=folder, resume=True)
        content = torch.load(folder / LAST, weights_only=True)
        for name, weight in expected["state_dict"].items():
            assert torch.allclose(weight, content["state_dict"][name], atol=1e-5), name
        place = content["loops"]["fit_loop"]["state_dict"]
        assert place["combined_loader"][0]["batches"] == 7 * after
