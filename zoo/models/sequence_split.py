"""One sequence in several processes: each computes some of its rows (tokens), in every layer.

Causal rows are divided in two rounds. In the first, process r has the block r of the first half; in the
second, the block r from the end of the second half. So all processes have as many pairs of queries and keys.
Each layer gathers keys, values and features of a round, and attends from its own rows to all of them: to the
encodings it looks like decoding several tokens with a cache.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from zoo.errors import RunError
from zoo.models.cache import LayerCache

Blocks = Sequence[slice]
"""The rows of each process, by rank."""


class _Gather(torch.autograd.Function):
    """The tensors of all processes [size,...]; the gradient of each is the sum over the processes.

    A gather takes `order` from the one before. So all processes go back through them in the same order, and
    through those whose output one of them does not use.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, order: Tensor, size: int, group: dist.ProcessGroup):
        ctx.group = group
        every = own.new_empty(size, *own.shape)
        dist.all_gather([*every], own, group=group)
        return every, order.clone()

    @staticmethod
    def backward(ctx: Any, every: Tensor, order: Tensor):
        every = every.contiguous()
        own = torch.empty_like(every[0])
        dist.reduce_scatter(own, [*every], group=ctx.group)
        return own, order, None, None


class SequenceSplit:
    """The processes that compute a sequence together.

    Args:
        rank, size: the number of this process, and of all.
        group: exchanges tensors on the device of the model.
        signals: exchanges numbers on the CPU; the group itself for models on a CPU. None in training, where a
            process without memory ends the others.
    """

    def __init__(
        self, rank: int, size: int, group: dist.ProcessGroup, signals: dist.ProcessGroup | None = None
    ):
        self.rank, self.size, self.group, self.signals = rank, size, group, signals
        self.failed = False
        self.order = torch.zeros(())

    def rounds(self, length: int, count: int = 1) -> list[Blocks]:
        """Rows 0 to `length` in so many rounds; the order of the processes turns from one to the next."""
        number = count * self.size
        blocks = [slice(i * length // number, (i + 1) * length // number) for i in range(number)]
        rounds = [blocks[i : i + self.size] for i in range(0, number, self.size)]
        return [one[::-1] if i % 2 else one for i, one in enumerate(rounds)]

    def gather(self, own: Tensor, dim: int, blocks: Blocks) -> Tensor:
        """The rows of a round along a dimension, in order, from those of this process. A collective."""
        sizes = [block.stop - block.start for block in blocks]
        missing = list(own.shape)
        missing[dim] = max(sizes) - own.shape[dim]
        own = torch.cat((own, own.new_zeros(missing)), dim) if missing[dim] else own.contiguous()
        self.agree()
        try:
            every, self.order = _Gather.apply(own, self.order, self.size, self.group)
        except RuntimeError as error:
            raise RunError("another process of this run has ended") from error
        every = [one.narrow(dim, 0, size) for one, size in zip(every, sizes, strict=True)]
        return torch.cat(every if blocks[0].start <= blocks[-1].start else every[::-1], dim)

    def agree(self, fits: bool = True) -> None:
        """Raises torch.OutOfMemoryError in every process if one of them has no memory. A collective."""
        if self.signals is None:
            return
        lacks = torch.tensor(not fits, dtype=torch.int32)
        try:
            dist.all_reduce(lacks, dist.ReduceOp.MAX, group=self.signals)
        except RuntimeError as error:
            raise RunError("another process of this run has ended") from error
        if lacks.item():
            self.failed = True
            raise torch.OutOfMemoryError("a process that computes a part of the sequence has no memory")


class GatheredRows(LayerCache):
    """The rows of a layer, of which each process adds its own, one round after the other.

    Args:
        split: the processes.
        length: of the sequence, in tokens.
    """

    def __init__(self, split: SequenceSplit, length: int):
        super().__init__(room=length)
        self.split = split
        self.blocks: Blocks = ()
        self.num_keys = 0

    def begin(self, blocks: Blocks, num_keys: int) -> None:
        """Add the rows of these blocks from now on, and return the first `num_keys` rows."""
        self.blocks, self.num_keys = blocks, num_keys

    def append(self, name: Hashable, new: Tensor, dim: int) -> Tensor:
        every = super().append(name, self.split.gather(new, dim, self.blocks), dim)
        return every.narrow(dim, 0, self.num_keys)

    def row_before(self, name: Hashable, new: Tensor, dim: int) -> Tensor | None:
        # One row of each process.
        order = sorted(block.start for block in self.blocks)
        place = order.index(self.blocks[self.split.rank].start)
        ones = [slice(at, at + 1) for at in (order.index(block.start) for block in self.blocks)]
        last = self.split.gather(new.narrow(dim, -1, 1), dim, ones)
        before = super().row_before(name, last, dim)
        return last.narrow(dim, place - 1, 1) if place else before
