"""The base of all tasks: model, optimizer and schedule, validation, logged values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torchmetrics import Metric

from zoo.errors import MOST_SHOWN, InputError, shorten
from zoo.models.transformer import Decoder, Encoder
from zoo.optimizers import build_optimizer
from zoo.recipe import resolve, schema
from zoo.schedules import schedule_of


class ExactMean(Metric):
    """The mean of losses in nats, or of right answers, as a sum and a count in float64.

    NaN where there was nothing. Unlike torchmetrics' own mean it skips no NaN, and unlike its perplexity it
    stays finite on the losses of a failed extrapolation.
    """

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, values: Tensor) -> None:
        """Add values, of any shape."""
        self.total += values.double().sum()
        self.count += values.numel()

    def compute(self) -> Tensor:
        return self.total / self.count


class Task(pl.LightningModule):
    """A model and its objective. Subclasses give the loss of a batch and the measures of its answers.

    Args:
        recipe: a resolved one, or one whose encoding is built; a checkpoint holds it as plain data.
        vocab_size: number of token ids.

    Attributes:
        card: the card of the run that trained it; empty before training.
        changed: options of its encoding that were changed after training, by dotted key.
        gradient_norm: of the current step, over all weights and before clipping; a scalar on its device.
    """

    name: ClassVar[str]
    takes: ClassVar[str] = ""
    """Kind of its examples: that which a dataset `gives`."""
    kinds: ClassVar[tuple[str, ...]] = ("decoder",)
    """Kinds of model."""
    protocols: ClassVar[tuple[str, ...]] = ()
    """Protocols that evaluate its models; the first is the default."""
    hides_tokens: ClassVar[bool] = False
    """Whether it predicts hidden tokens of a text instead of the next one."""
    validated: ClassVar[tuple[str, ...]] = ("loss",)
    """Names of the values of `validate`."""
    head: ClassVar[Literal["vocabulary", "pointer"]] = "vocabulary"

    def __init__(self, recipe: schema.Recipe | dict[str, Any], vocab_size: int):
        super().__init__()
        self.recipe = recipe if isinstance(recipe, schema.Recipe) else resolve(recipe)
        self.save_hyperparameters({"recipe": self.recipe.as_dict(), "vocab_size": vocab_size})
        kind = Decoder if self.recipe.model.kind == "decoder" else Encoder
        length, seed = self.recipe.data.sequence_length, self.recipe.seed
        self.model = kind(self.recipe.model, vocab_size, length, self.head, seed)
        self.means = torch.nn.ModuleDict({name: ExactMean() for name in self.validated})
        self.card: dict[str, Any] = {}
        self.changed: dict[str, Any] = {}
        self.gradient_norm = torch.tensor(math.nan)

    def configure_model(self) -> None:
        """Divide every parameter among the processes of `trainer.strategy: fsdp`."""
        if self.device_mesh is None:
            return
        mesh = self.device_mesh["data_parallel"]
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        # What several blocks use stays gathered to the end of the step: embedding, encodings, head.
        fully_shard(self.model, mesh=mesh, reshard_after_forward=False)
        register_fsdp_forward_method(self.model, "hidden")

    def restore(self, weights: Mapping[str, Tensor], where: Path | None = None) -> None:
        """Take weights. Raises InputError, as of the file `where`, if they do not fit or are NaN."""
        begin = f"{where}: " if where else ""
        try:
            self.load_state_dict(weights)
        except RuntimeError as error:
            faults = "; ".join(line.strip() for line in str(error).splitlines()[1:])
            message = f"{begin}its weights do not fit its recipe: {shorten(faults, MOST_SHOWN)}"
            raise InputError(message) from error
        # A buffer may hold infinities: a mask is made of them.
        wrong = [name for name, value in self.named_parameters() if not value.isfinite().all()]
        if wrong:
            why = "training had failed when it was written; an earlier one may be usable"
            raise InputError(f"{begin}{why}: {', '.join(wrong[:6])}: NaN or infinite numbers")

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens)

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        """The mean loss of a batch, in nats."""
        raise NotImplementedError

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Values of any shape by name; their mean over the validation data is logged as `val/NAME`."""
        raise NotImplementedError

    def judge(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Correctness of the answer to each example, from 0 to 1: [B] for each measure, the main one first.

        NaN where a measure does not apply to an example. Only for tasks that have an answer.
        """
        raise NotImplementedError

    def on_train_start(self) -> None:
        # A checkpoint holds the rate of its next step by the max_steps of that time.
        schedule = self.lr_schedulers()
        groups = zip(schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True)
        for group, lr, factor in groups:
            group["lr"] = lr * factor(schedule.last_epoch)

    def training_step(self, batch: dict[str, Tensor], batch_index: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: dict[str, Tensor], batch_index: int) -> None:
        for name, values in self.validate(batch).items():
            self.means[name].update(values)
            self.log(f"val/{name}", self.means[name], on_step=False, on_epoch=True, logger=False)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip as Lightning does, and keep the norm."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if gradient_clip_val and gradient_clip_algorithm in (None, "norm"):
            norm = torch.nn.utils.clip_grad_norm_(parameters, gradient_clip_val)
        else:
            norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
            if gradient_clip_val:
                torch.nn.utils.clip_grad_value_(parameters, gradient_clip_val)
        self.gradient_norm = norm.full_tensor() if isinstance(norm, DTensor) else norm

    def configure_optimizers(self) -> dict[str, Any]:
        config = self.recipe.optimizer
        optimizer = build_optimizer(config, self.model, self.recipe.trainer.precision)
        factor = schedule_of(config, self.recipe.trainer.max_steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def split_by_length(measure: str, values: Tensor, within: Tensor) -> dict[str, Tensor]:
    """A measure [B] apart for the examples where `within` [B] holds and for all others; NaN elsewhere."""
    return {
        f"{measure}_within": values.masked_fill(~within, math.nan),
        f"{measure}_beyond": values.masked_fill(within, math.nan),
    }
