"""Turns a lack of memory during training into an error that has the sizes, and what to lower."""

from __future__ import annotations

from contextlib import ExitStack

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch.distributed.tensor import DTensor

from zoo.memory import allocations_bounded, free_memory
from zoo.models.kernels import MOST_KEPT_ELEMENTS
from zoo.recipe import Recipe
from zoo.tasks.task import Task


class MemoryGuard(Callback):
    """Bounds what a CPU process may allocate, and describes what a step of training holds.

    Linux hands out more memory of a CPU than there is, and kills the process later, without a message.

    Attributes:
        free: bytes that this process may allocate; None where that is unknown.
        rows: sequences that go through the model at once.
    """

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.free: int | None = None
        self.bound = ExitStack()

    def setup(self, trainer: pl.Trainer, module: Task, stage: str) -> None:
        parts = trainer.world_size * self.recipe.trainer.accumulate_grad_batches
        self.rows, self.task = max(1, self.recipe.data.batch_size // parts), module
        if trainer.strategy.root_device.type == "cpu":
            # Once all processes are there: each has its share of what is free.
            trainer.strategy.barrier()
            self.free = self.bound.enter_context(allocations_bounded(trainer.num_devices))

    def on_fit_start(self, trainer: pl.Trainer, module: Task) -> None:
        if trainer.strategy.root_device.type == "cuda":
            self.free = free_memory(trainer.strategy.root_device)

    def teardown(self, trainer: pl.Trainer, module: Task, stage: str) -> None:
        self.bound.close()  # restore the limit

    def on_exception(self, trainer: pl.Trainer, module: Task, exception: BaseException) -> None:
        self.bound.close()

    @property
    def accumulate(self) -> int | None:
        """What to raise accumulate_grad_batches to; None where smaller parts of a batch do not help."""
        if self.rows == 1 or self._is_too_large(self._weights()):
            return None
        parts = next(parts for parts in range(2, self.rows + 1) if self.rows % parts == 0)
        return self.recipe.trainer.accumulate_grad_batches * parts

    def describe(self, when: str) -> str:
        """What a step holds, and what to lower: what helps most first."""
        data, model, length = self.recipe.data, self.recipe.model, self.recipe.data.sequence_length
        there = "" if self.free is None else f", of {_size(self.free)} that this process may take"
        text = f"out of memory {when}{there}: a batch is {data.batch_size:,} x {length:,} tokens"
        if self.rows < data.batch_size:
            text += f", {self.rows:,} x {length:,} at a time"
        pairs = self.rows * model.num_heads * length**2
        # Larger tables are not kept.
        if pairs <= MOST_KEPT_ELEMENTS and (layers := self._layers_with_tables()):
            text += f"; the tables of this encoding's scores {_size(4 * layers * pairs)}"
        weights = self._weights()
        text += f"; weights and gradients {_size(2 * weights)}, activations and optimizer the rest"
        advice = []
        if self._is_too_large(weights):
            advice.append("lower model.d_model or model.num_layers, or share them with trainer.strategy=fsdp")
        if more := self.accumulate:
            advice.append(f"set trainer.accumulate_grad_batches={more} (the result stays the same)")
        if self.recipe.trainer.precision.startswith("32"):
            advice.append("train with trainer.precision=bf16-mixed")
        advice.append("lower data.sequence_length or data.batch_size")
        return f"{text}. What helps most first: {'; '.join(advice)}"

    def _weights(self) -> int:
        """Bytes of the weights in this process: in shards it has only its own share."""
        own = [p.to_local() if isinstance(p, DTensor) else p for p in self.task.parameters()]
        return sum(p.numel() * p.element_size() for p in own)

    def _is_too_large(self, weights: int) -> bool:
        return self.free is not None and 2 * weights > self.free

    def _layers_with_tables(self) -> int:
        """The layers whose kernel writes out a score of all pairs of positions."""
        layers = range(self.recipe.model.num_layers)
        views = [self.task.model.encoding.layer(layer) for layer in layers]
        plain = self.recipe.model.kernel == "reference"
        return sum(bool(plain or view.reshaped or view.valued or view.scored) for view in views)


def _size(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 0.95 * 2**30 else f"{max(1, round(count / 2**20)):,} MiB"
