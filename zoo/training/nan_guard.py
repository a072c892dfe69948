"""Ends a run at a NaN or infinity, and keeps them out of checkpoints."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.distributed.tensor import DTensor

from zoo.errors import RunError
from zoo.runs.folder import RECIPE
from zoo.training.checkpoints.callbacks import LastCheckpoint

LEAST_SCALE = 1e-4
"""A gradient scaler that has come down to this finds no gradient finite: fairseq stops there too."""


class NanGuard(Callback):
    """Ends a run whose loss or gradient is NaN or infinite, and keeps from checkpoints what is not finite.

    On a CPU every step is checked. Reading a value off another device waits for it: there it is done where
    a step is logged or saved. The processes of a run end at the same step, each with the same error.

    Raises:
        RunError: a loss, a gradient norm, a weight or a moment of the optimizer is not finite.
    """

    def __init__(self) -> None:
        self.step = self.checked_at = 0
        self.losses: list[Tensor] = []
        self.norms: list[Tensor] = []
        self.lr = math.nan
        self.begins = self.failed = False

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.step = self.checked_at = trainer.global_step
        self.losses, self.norms = [], []

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        # After the step the schedule has moved on.
        self.lr = float(optimizer.param_groups[0]["lr"])

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: dict, batch: object, index: int
    ) -> None:
        if self.begins:
            self.checked_at, self.losses, self.norms, self.begins = self.step, [], [], False
        self.losses.append(outputs["loss"].detach())
        step = trainer.global_step
        if step == self.step:
            return  # within an accumulated batch
        self.step = step
        self.norms.append(module.gradient_norm)
        if step % trainer.log_every_n_steps == 0 or step == trainer.max_steps:
            self._check_all(trainer, module)
            self.begins = True
        elif module.device.type == "cpu":
            # The norm is that of all processes, which see the same of it without asking each other.
            own = self.losses[-trainer.accumulate_grad_batches :] if trainer.world_size == 1 else []
            if _any_not_finite(trainer, own, self.norms[-1:]):
                self._fail(trainer, module)

    def on_save_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict) -> None:
        if not self.failed:
            self._check_all(trainer, module, saved=True)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        loss = trainer.callback_metrics.get("val/loss")
        if loss is None or trainer.sanity_checking or not trainer.is_global_zero or math.isfinite(loss):
            return
        # The weights and the training loss are finite: the user decides whether to continue.
        print(
            f"the validation loss is {float(loss)} at step {trainer.global_step}; no best.ckpt is kept of it",
            flush=True,
        )

    def _check_all(self, trainer: pl.Trainer, module: pl.LightningModule, saved: bool = False) -> None:
        """A collective: every process calls it at the same step."""
        wrong = _any_not_finite(trainer, self.losses, self.norms)
        wrong = wrong or (saved and not _is_finite(_state(trainer, module)))
        if trainer.strategy.reduce_boolean_decision(wrong, all=False):
            self._fail(trainer, module)

    def _fail(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """A collective: every process calls it at the same step."""
        self.failed = True
        parts = trainer.accumulate_grad_batches
        # A run that was just resumed has no step behind it.
        none = torch.tensor(math.nan, device=trainer.strategy.root_device)
        last = torch.stack(self.losses[-parts:] or [none]).mean() * parts
        loss = trainer.strategy.reduce(last, reduce_op="mean").item()
        # A collective before any report: what the processes have seen may differ.
        names, weights = zip(*module.named_parameters(), strict=True)
        wrong = _which_not_finite(trainer, [weight.detach() for weight in weights])
        weights = [name for name, is_wrong in zip(names, wrong, strict=True) if is_wrong]
        firsts = {
            "loss": self._first(_which_not_finite(trainer, self.losses), parts),
            "gradient": self._first(_which_not_finite(trainer, self.norms)),
        }
        norm = self.norms[-1].item() if self.norms else math.nan
        what = f"learning rate {self.lr:.3g}, gradient norm {norm:.4g}"
        if not math.isfinite(loss):
            subject = f"the loss is {loss} at step {self.step} ({what})"
        elif firsts["loss"] or (firsts["gradient"] and not _scaler(trainer)):
            subject = f"the gradient is not finite at step {self.step} (loss {loss:.4g}, {what})"
        else:
            subject = f"{_where(trainer, weights)} after step {self.step} (loss {loss:.4g}, {what})"
        raise RunError(f"{subject}: training has failed{self._since(firsts)}. {_advice(trainer)}")

    def _since(self, firsts: dict[str, int | None]) -> str:
        """The first step that showed it, where that is an earlier one."""
        found = {name: step for name, step in firsts.items() if step}
        if min(found.values(), default=self.step) == self.step:
            return ""
        name = min(found, key=found.get)
        return f"; the first that was not finite was the {name} of step {found[name]}"

    def _first(self, wrong: list[bool], parts: int = 1) -> int | None:
        return self.checked_at + wrong.index(True) // parts + 1 if True in wrong else None


def _where(trainer: pl.Trainer, names: list[str]) -> str:
    scaler = _scaler(trainer)
    if scaler is not None and scaler.get_scale() < LEAST_SCALE:
        return f"no gradient is finite, though the loss is scaled by {scaler.get_scale():.1g} only,"
    if not names:
        return "the optimizer's moments are not finite"
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return f"the weights {', '.join(names[:2])}{more} are not finite"


def _advice(trainer: pl.Trainer) -> str:
    last = next((c for c in trainer.callbacks if isinstance(c, LastCheckpoint)), None)
    helps = "a lower optimizer.lr, a longer optimizer.warmup_steps or a wider trainer.precision may help"
    anomaly = "trainer.detect_anomaly=true names the operation, slowly"
    if last is None or not last.saved_at:
        return f"No checkpoint was written. Start anew: {helps}; {anomaly}"
    again = ["python", "-m", "zoo", "fit", "--recipe", str(last.folder / RECIPE)]
    again += ["--set", f"init_from={last.folder}", "--set", "optimizer.lr=..."]
    return (
        f"The last checkpoint is of step {last.saved_at} and is sound. With --resume it comes to the same "
        f"step again ({anomaly}); start another run from its weights ({shlex.join(again)}) or anew: {helps}"
    )


def _state(trainer: pl.Trainer, module: pl.LightningModule) -> list[Tensor]:
    """What a checkpoint holds and training changes: the weights, and the moments of the optimizer."""
    moments = [
        value
        for optimizer in trainer.optimizers
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    ]
    return [*(parameter.detach() for parameter in module.parameters()), *moments]


def _is_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every element is; waits for the device once."""
    # Of what is in shards each process looks at its own.
    own = [one.to_local() if isinstance(one, DTensor) else one for one in tensors]
    # Of two passes over the weights the quicker one; what is too large to be squared is lost as well.
    return bool(torch.nn.utils.get_total_norm(own).isfinite())


def _which_not_finite(trainer: pl.Trainer, tensors: list[Tensor]) -> list[bool]:
    """Which of them are not finite in any process. A collective."""
    own = [float(not _is_finite([tensor])) for tensor in tensors]
    bits = torch.tensor(own, device=trainer.strategy.root_device)
    return trainer.strategy.reduce(bits, reduce_op="max").bool().tolist()


def _any_not_finite(trainer: pl.Trainer, losses: list[Tensor], norms: list[Tensor]) -> bool:
    scaler = _scaler(trainer)
    if scaler is None:
        numbers = [*losses, *norms]
    elif scaler.get_scale() < LEAST_SCALE:
        return True
    else:
        numbers = losses  # it skips a step whose gradient is not finite, and scales less from then on
    return bool(numbers and not torch.stack(numbers).isfinite().all())


def _scaler(trainer: pl.Trainer) -> torch.amp.GradScaler | None:
    return getattr(trainer.precision_plugin, "scaler", None)
