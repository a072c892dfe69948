"""What all tasks share: the model, the optimizer and its schedule, validation, and what is logged."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torchmetrics import Metric

from zoo.models.transformer import Decoder, Encoder
from zoo.optimizers import build_optimizer
from zoo.recipe import resolve, schema
from zoo.schedules import schedule_of
from zoo.tasks import BuiltRecipe


class ExactMean(Metric):
    """The mean of losses in nats, or of answers that are right or not, from their sum and their count.

    NaN where there was nothing. Other than torchmetrics' own mean it leaves no NaN out, and other than its
    perplexity it stays finite on the losses that failed extrapolation produces. Options are those of
    `torchmetrics.Metric`.

    >>> loss, accuracy = ExactMean(), ExactMean()
    >>> loss.update(torch.tensor([1.0, 2.0, 3.0]))
    >>> accuracy.update(torch.tensor([True, False, True, True]))
    >>> loss.compute().item(), accuracy.compute().item()
    (2.0, 0.75)
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
    """A model and what it is asked to do. Subclasses say what a batch costs and what is measured.

    Args:
        recipe: a resolved one, or one whose encoding is built; a checkpoint holds it as plain data.
        vocab_size: number of token ids.

    Attributes:
        card: what is known of the run that it was trained in; empty before training.
        changed: what of its encoding was set anew after training, by dotted key; empty where nothing was.
        gradient_norm: of the step in hand, over all weights and before clipping: a number, on its device.
    """

    name: ClassVar[str]
    takes: ClassVar[str] = ""
    """What examples it learns from: what a dataset `gives`."""
    kinds: ClassVar[tuple[str, ...]] = ("decoder",)
    """Kinds of model that it is for."""
    protocols: ClassVar[tuple[str, ...]] = ()
    """How its models can be evaluated; the first is the default."""
    hides_tokens: ClassVar[bool] = False
    """Of a text: it predicts tokens that are hidden from the model, in place of the next one."""
    validated: ClassVar[tuple[str, ...]] = ("loss",)
    """What `validate` gives."""
    head: ClassVar[Literal["vocabulary", "pointer"]] = "vocabulary"

    def __init__(self, recipe: schema.Recipe | BuiltRecipe | dict[str, Any], vocab_size: int):
        super().__init__()
        encoding = None
        if isinstance(recipe, BuiltRecipe):
            recipe, encoding = recipe.recipe, recipe.encoding
        self.recipe = recipe if isinstance(recipe, schema.Recipe) else resolve(recipe)
        self.save_hyperparameters({"recipe": self.recipe.as_dict(), "vocab_size": vocab_size})
        kind = Decoder if self.recipe.model.kind == "decoder" else Encoder
        length, seed = self.recipe.data.sequence_length, self.recipe.seed
        self.model = kind(self.recipe.model, vocab_size, length, self.head, seed, encoding)
        self.means = torch.nn.ModuleDict({name: ExactMean() for name in self.validated})
        self.card: dict[str, Any] = {}
        self.changed: dict[str, Any] = {}
        self.gradient_norm = torch.tensor(math.nan)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens)

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        """The mean loss of a batch, in nats."""
        raise NotImplementedError

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """What is validated of a batch: values, of any shape, the mean of which is logged as `val/NAME`."""
        raise NotImplementedError

    def judge(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """How right the answer to each example of a batch is, from 0 to 1: [B] for each measure.

        The first measure is the main one. NaN where a measure does not apply to an example. Only tasks that
        have an answer are judged.
        """
        raise NotImplementedError

    def on_train_start(self) -> None:
        # A checkpoint holds the rate of its next step by the max_steps that the run had until then.
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
        # The scaler of 16-mixed hands unscaled gradients to clip only to an optimizer that is not fused.
        fused = self.recipe.trainer.precision != "16-mixed"
        optimizer = build_optimizer(config, self.model, fused)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, schedule_of(config, self.recipe.trainer.max_steps)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def split_by_length(measure: str, values: Tensor, within: Tensor) -> dict[str, Tensor]:
    """A measure [B] apart for the examples where `within` [B] holds and for all others; NaN elsewhere."""
    return {
        f"{measure}_within": values.masked_fill(~within, math.nan),
        f"{measure}_beyond": values.masked_fill(within, math.nan),
    }
