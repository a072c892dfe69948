"""A run with NaN or infinite values ends at once, names the step, and leaves a finite checkpoint."""

import json
import os
import signal

import pytest
import torch
from killed_runs import endless, texts
from lightning.pytorch import LightningModule
from run_files import logged, saved

from zoo.data import open_data
from zoo.errors import RunError
from zoo.reports.fit import fit
from zoo.tasks import build_task
from zoo.training.callbacks import StepLog
from zoo.training.module import TaskModule

pytestmark = pytest.mark.usefixtures("unmeasured")

EVERY_TWO = ["trainer.max_steps=8", "checkpoint.every_n_steps=2", "trainer.log_every_n_steps=100"]


def assert_finite(content):
    tensors = [*content["state_dict"].values()]
    tensors += [v for state in content["optimizer_states"][0]["state"].values() for v in state.values()]
    assert len(tensors) > 10 and all(tensor.isfinite().all() for tensor in tensors)


@pytest.fixture
def loss_becomes(monkeypatch):
    """From the step after `step` on, what the task's loss gives is changed."""
    real = TaskModule.training_step

    def loss_becomes(step, change):
        def changed(self, batch, index):
            loss = real(self, batch, index)
            return change(loss) if self.global_step >= step else loss

        monkeypatch.setattr(TaskModule, "training_step", changed)

    return loss_becomes


@pytest.fixture
def after_step(monkeypatch):
    """Do something to the run once a step is done, before any other callback sees it."""
    real = StepLog.on_train_batch_end

    def after_step(step, do):
        def done(self, trainer, module, *given):
            real(self, trainer, module, *given)
            if trainer.global_step == step:
                do(trainer, module)

        monkeypatch.setattr(StepLog, "on_train_batch_end", done)

    return after_step


def test_the_step_is_reported_though_it_is_not_logged(here, recipe, loss_becomes):
    value = "inf"
    loss_becomes(4, lambda loss: loss * float(value))
    recipe = recipe("max_index", *EVERY_TWO)
    with pytest.raises(RunError) as caught:
        fit(recipe)
    message = str(caught.value)
    assert f"the loss is {value} at step 5 (learning rate 0.00" in message and "gradient norm nan" in message
    assert "last checkpoint is of step 4" in message and "init_from=runs/tiny" in message
    folder = here / "runs" / "tiny"
    assert saved(folder)["global_step"] == 4
    for name in ("last", "best"):
        assert_finite(saved(folder, name))
    assert json.loads((folder / "card.json").read_text())["steps"] == 4
    # It continues from there, to the same end.
    with pytest.raises(RunError, match=f"the loss is {value} at step 5 .*of step 4"):
        fit(recipe, out=folder, resume=True)
    assert_finite(saved(folder))


def test_a_loss_before_the_first_checkpoint_is_reported(here, recipe, loss_becomes):
    loss_becomes(0, lambda loss: loss * float("nan"))
    with pytest.raises(RunError, match=r"at step 1 .*No checkpoint was written.*lower optimizer\.lr"):
        fit(recipe("max_index", *EVERY_TWO))
    assert not [*(here / "runs").glob("*/checkpoints/*")]


def test_it_ends_at_the_next_logged_step_where_values_are_read_rarely(
    here, recipe, loss_becomes, monkeypatch
):
    """As on a GPU, which only logs and checkpoints wait for."""
    loss_becomes(4, lambda loss: loss * float("nan"))
    monkeypatch.setattr(TaskModule, "device", torch.device("meta"), raising=False)
    monkeypatch.setattr("zoo.training.callbacks.peak_memory_mb", lambda device: 0.0)
    sets = ["trainer.max_steps=8", "checkpoint.every_n_steps=4", "trainer.log_every_n_steps=7"]
    with pytest.raises(RunError, match="the loss is nan at step 7 "):
        fit(recipe("max_index", *sets))
    assert saved(here / "runs" / "tiny")["global_step"] == 4


def test_an_infinite_gradient_of_a_finite_loss_ends_it_too(here, recipe, loss_becomes):
    def steep(loss):
        loss.register_hook(lambda gradient: gradient * float("inf"))
        return loss

    loss_becomes(2, steep)
    with pytest.raises(RunError, match=r"gradient is not finite at step 3 \(learning .* loss \d.*of step 2"):
        fit(recipe("max_index", *EVERY_TWO, "trainer.accumulate_grad_batches=2"))
    assert_finite(saved(here / "runs" / "tiny"))


@pytest.mark.parametrize("what, asked", [("weights", True), ("moments", False)])
def test_a_state_that_is_not_finite_is_never_saved(here, recipe, after_step, what, asked):
    def poison(trainer, module):
        weight = module.model.tokens.weight
        spoilt = weight if what == "weights" else trainer.optimizers[0].state[weight]["exp_avg_sq"]
        spoilt.data[0, 0] = float("inf")
        if asked:
            os.kill(os.getpid(), signal.SIGINT)

    # The signal is heard in step 5, and answered after the next.
    after_step(5 if asked else 4, poison)
    step = 6 if asked else 4
    pattern = r"the weights model\.tokens\.weight" if what == "weights" else "moments of the optimizer"
    with pytest.raises(RunError, match=rf"{pattern} are not finite after step {step} \(learning .* loss \d"):
        # Not validated, or Ctrl-C would have to wait for it.
        fit(recipe("max_index", *EVERY_TWO, "trainer.limit_val_batches=0"))
    content = saved(here / "runs" / "tiny")
    assert content["global_step"] == step - 2
    assert_finite(content)


def test_a_validation_that_is_not_finite_is_reported_and_is_not_the_best(here, recipe, monkeypatch, capsys):
    real = TaskModule.validation_step

    def invalid(self, batch, index):
        real(self, batch, index)
        if self.global_step in (2, 6):
            self.means["loss"].update(torch.tensor([float("nan")]))

    monkeypatch.setattr(TaskModule, "validation_step", invalid)
    folder = fit(recipe("max_index", *EVERY_TWO))
    lines = [line for line in capsys.readouterr().out.splitlines() if "validation loss" in line]
    assert [line.split(";")[0] for line in lines] == [
        f"the validation loss is nan at step {step}" for step in (2, 6)
    ]
    assert saved(folder)["global_step"] == 8
    assert saved(folder, "best")["global_step"] in (4, 8)
    only = fit(recipe("max_index", *EVERY_TWO, "trainer.max_steps=2"))
    assert [file.name for file in (only / "checkpoints").iterdir()] == ["last.ckpt"]


def metrics(folder):
    return {int(row["step"]): row for row in logged(folder)}


@pytest.mark.parametrize("sets", [
    ["trainer.gradient_clip_val=0.1", "trainer.accumulate_grad_batches=2"],
    ["trainer.gradient_clip_val=0.001", "trainer.gradient_clip_algorithm=value"],
], ids=["norm", "value"])  # fmt: skip
def test_weights_are_bitwise_those_of_lightnings_clipping(here, recipe, monkeypatch, sets):
    def lightnings(self, *given, **named):
        LightningModule.configure_gradient_clipping(self, *given, **named)
        self.gradient_norm = torch.tensor(1.0)

    recipe = recipe("text", "trainer.log_every_n_steps=1", *sets)
    ours = fit(recipe, out=here / "ours")
    with monkeypatch.context() as patch:
        patch.setattr(TaskModule, "configure_gradient_clipping", lightnings)
        theirs = fit(recipe, out=here / "theirs")
    one, two = saved(ours)["state_dict"], saved(theirs)["state_dict"]
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    norms = [float(row["train/gradient_norm"]) for row in metrics(ours).values()]
    assert len(norms) == 6 and all(0.1 < norm < 10 for norm in norms)


def test_the_norm_is_that_of_the_full_batch_before_clipping(here, recipe):
    sets = ["trainer.log_every_n_steps=1", "trainer.gradient_clip_val=0.01"]
    once, parts = recipe("text", *sets), recipe("text", *sets, "trainer.accumulate_grad_batches=4")
    source = open_data(once)
    task = build_task(once, source.vocab_size)
    task.loss(next(iter(source.train_loader()))).backward()
    squares = sum(float(p.grad.double().square().sum()) for p in task.model.parameters())
    for one in (once, parts):
        row = metrics(fit(one))[1]
        assert float(row["train/gradient_norm"]) == pytest.approx(squares**0.5, rel=1e-5)


def test_a_step_that_a_gradient_scaler_skips_is_no_failure(here, recipe, loss_becomes, monkeypatch):
    """float16 needs a GPU: here a scaler is added to float32, and has skipped the step."""
    from lightning.pytorch.plugins.precision import Precision

    monkeypatch.setattr(Precision, "scaler", object(), raising=False)
    real = TaskModule.configure_gradient_clipping

    def overflown(self, *given, **named):
        real(self, *given, **named)
        if self.global_step == 2:
            self.gradient_norm = torch.tensor(float("inf"))

    monkeypatch.setattr(TaskModule, "configure_gradient_clipping", overflown)
    assert saved(fit(recipe("max_index", *EVERY_TWO)))["global_step"] == 8
    # The loss has to be finite nevertheless.
    loss_becomes(4, lambda loss: loss * float("nan"))
    with pytest.raises(RunError, match="the loss is nan at step 5"):
        fit(recipe("max_index", *EVERY_TWO, "name=lost"))


# The loss of the second process alone goes wrong in the fifth step; its gradient stays finite.
WRONG = """
import os
from zoo.training.module import TaskModule

real = TaskModule.training_step

def wrong(self, batch, index):
    loss = real(self, batch, index)
    return loss + float("nan") if self.global_step >= 4 and os.environ["LOCAL_RANK"] == "1" else loss

TaskModule.training_step = wrong
"""


@pytest.mark.slow
def test_both_processes_end_where_one_goes_wrong(forks, here, mapping):
    (here / "wrong.py").write_text(WRONG)
    arguments = endless(mapping, here, "trainer.devices=2", "trainer.strategy=ddp", *EVERY_TWO)
    codes = forks.wait(forks.start(arguments, here, here / "log", 2, patch=here / "wrong.py"))
    text = texts(here / "log")
    assert codes[0] == 1 and codes[1] != 0 and "Traceback" not in text, text
    assert "the loss is nan at step 5 " in text
    content = saved(here / "run")
    assert content["global_step"] == 4
    assert_finite(content)
