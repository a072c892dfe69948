"""Memory for a training step: the least it needs, what there is, and what to lower if that is too little."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch.distributed.tensor import DTensor

from zoo.errors import RunError
from zoo.memory import allocations_bounded, free_memory
from zoo.optimizers import example_state
from zoo.recipe import Recipe
from zoo.tasks.task import Task


@dataclass(frozen=True)
class MemoryNeed:
    """The least that a training step of one process holds, in bytes; activations come on top.

    Attributes:
        rows, length: what goes through the model at once.
        parts: how many such micro-batches all processes together make of a batch.
        weights, moments: of the model, and of its optimizer; gradients are as large as the weights.
        logits: of a micro-batch; their gradient is as large. 0 where only some positions have any.
        tables: scores or biases of all pairs that are written out, kept for the backward pass.
        kept_tables: those of them that every device and precision keeps.
    """

    rows: int
    length: int
    parts: int
    weights: int
    moments: int
    logits: int
    tables: int
    kept_tables: int

    @property
    def least(self) -> int:
        """What a step allocates besides the weights, at the least."""
        return self.least_of(self.rows)

    def least_of(self, rows: int) -> int:
        """The same, where so many of its rows go through the model at once."""
        of_pairs_and_logits = (2 * self.logits + self.kept_tables) // self.rows * rows
        return self.moments + max(self.weights, of_pairs_and_logits)


def memory_need(recipe: Recipe, task: Task, world_size: int = 1) -> MemoryNeed:
    parts = world_size * recipe.trainer.accumulate_grad_batches
    rows, length = max(1, recipe.data.batch_size // parts), recipe.data.sequence_length
    own = [p.to_local() if isinstance(p, DTensor) else p for p in task.parameters()]
    weights = sum(p.numel() * p.element_size() for p in own)
    copies = {dim: _copies(recipe, dim) for dim in {p.dim() for p in own}}
    moments = sum(copies[p.dim()] * p.numel() * p.element_size() for p in own)
    # A model of text has logits at every position; losses are computed in float32 whatever the precision.
    vocabulary = task.hparams["vocab_size"] if task.takes == "text" else 0
    return MemoryNeed(
        rows=rows,
        length=length,
        parts=parts,
        weights=weights,
        moments=moments,
        logits=4 * rows * length * vocabulary,
        tables=_tables(recipe, task, rows, length),
        kept_tables=_kept_tables(recipe, task, rows, length),
    )


def _copies(recipe: Recipe, dim: int) -> int:
    """How many tensors of a parameter's own size its optimizer keeps."""
    shape, state = example_state(recipe.optimizer, dim)
    return sum(getattr(value, "shape", None) == shape and value.numel() > 1 for value in state.values())


def _tables(recipe: Recipe, task: Task, rows: int, length: int) -> int:
    """Bytes of [batch, heads, length, length] in each layer whose kernel must write them out; of a fixed bias
    one of [heads, length, length] for all."""
    pairs = 4 * recipe.model.num_heads * length**2
    written, shared = 0, 0
    for layer in range(recipe.model.num_layers):
        view = task.model.encoding.view(layer)
        biases = [view.encodings[i] for i in view.biased]
        learned = any(next(bias.parameters(), None) is not None for bias in biases)
        if view.reshaped or view.valued or view.scored or learned or recipe.model.kernel == "reference":
            written += rows * pairs
        elif biases:
            shared = pairs
    return written + shared


def _kept_tables(recipe: Recipe, task: Task, rows: int, length: int) -> int:
    """Bytes of one [batch, heads, length, length] in each layer whose weights the backward pass takes from
    where they were written. What a compiler or a fused kernel makes of a bias is not known here."""
    if recipe.compile or recipe.model.kernel == "flex":
        return 0
    views = [task.model.encoding.view(layer) for layer in range(recipe.model.num_layers)]
    plain = recipe.model.kernel == "reference"
    written = sum(bool(plain or view.reshaped or view.valued or view.scored) for view in views)
    size = 4 if recipe.trainer.precision.startswith(("32", "64")) else 2
    return written * size * rows * recipe.model.num_heads * length**2


class MemoryGuard(Callback):
    """Turns a lack of memory into an error, and raises it before the first step if it is certain.

    Linux hands out more memory of a CPU than there is, and kills the process later, without a message.

    Raises:
        RunError: before the first step, where not even what a step holds for certain can be had.
    """

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.free: int | None = None
        self.need: MemoryNeed | None = None
        self.bound = ExitStack()

    def setup(self, trainer: pl.Trainer, module: Task, stage: str) -> None:
        # Once all processes are there: each has its share of what is free.
        self.need = memory_need(self.recipe, module, trainer.world_size)
        device = trainer.strategy.root_device
        if device.type == "cpu":
            trainer.strategy.barrier()
            self.free = self.bound.enter_context(allocations_bounded(trainer.num_devices))

    def on_fit_start(self, trainer: pl.Trainer, module: Task) -> None:
        # In shards a process has only its own share of the weights, known from here on.
        self.need = memory_need(self.recipe, module, trainer.world_size)
        device = trainer.strategy.root_device
        if device.type == "cuda":
            self.free = free_memory(device)
        short = self.free is not None and self.need.least > self.free
        if trainer.strategy.reduce_boolean_decision(short, all=False):
            raise RunError(self.describe("before the first step"))

    def teardown(self, trainer: pl.Trainer, module: Task, stage: str) -> None:
        self.bound.close()  # restore the limit

    def on_exception(self, trainer: pl.Trainer, module: Task, exception: BaseException) -> None:
        self.bound.close()

    def describe(self, when: str) -> str:
        """The sizes of what a step holds, and what to lower: what helps most first."""
        need, data = self.need, self.recipe.data
        there = "" if self.free is None else f", of {_size(self.free)} that this process may take"
        lines = [f"out of memory {when}{there}: a batch is {data.batch_size:,} x {need.length:,} tokens"]
        if need.parts > 1:
            lines[0] += f", {need.rows:,} x {need.length:,} at a time"
        held = []
        if need.logits:
            held.append(
                f"the logits over {need.logits // (4 * need.rows * need.length):,} tokens take "
                f"{_size(need.logits)} and their gradient as much"
            )
        if need.tables:
            held.append(f"the tables of this encoding's scores {_size(need.tables)}")
        states = need.weights * 2 + need.moments
        held.append(f"weights, gradients and the optimizer's moments {_size(states)}, activations the rest")
        return f"{lines[0]}; {', '.join(held)}. {self._advice()}"

    @property
    def accumulate(self) -> int | None:
        """What to raise accumulate_grad_batches to; None where smaller parts of a batch do not help."""
        rows = self.need.rows
        for parts in range(2, rows + 1):
            if rows % parts == 0 and self._fits(rows // parts):
                return self.recipe.trainer.accumulate_grad_batches * parts
        return None

    def _fits(self, rows: int) -> bool:
        """Whether the least memory of a step of so many rows is free; True if that is unknown."""
        return self.free is None or self.need.least_of(rows) <= self.free

    def _is_too_large(self) -> bool:
        """Whether gradients and moments alone do not fit."""
        return self.free is not None and self.need.moments + self.need.weights > self.free

    def _advice(self) -> str:
        need, config = self.need, self.recipe
        ways = []
        if self.accumulate:
            ways.append(f"set trainer.accumulate_grad_batches={self.accumulate} (the result stays the same)")
        elif self._is_too_large():
            ways.append(
                "lower model.d_model or model.num_layers, or share the weights with trainer.strategy=fsdp"
            )
        smaller = ["data.sequence_length"] + ["data.batch_size"] * (need.rows > 1)
        if not self._fits(1) and not self._is_too_large():
            ways.append("lower data.sequence_length: not even one sequence of it fits")
            smaller = []
        if need.logits and hasattr(config.data, "vocab_size"):
            smaller.append("data.vocab_size")
        if config.trainer.precision.startswith("32"):
            ways.append("train with trainer.precision=bf16-mixed")
        if smaller:
            ways.append(f"lower {' or '.join(smaller)}")
        return "What helps most first: " + "; ".join(ways)


def _size(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 0.95 * 2**30 else f"{max(1, round(count / 2**20)):,} MiB"
