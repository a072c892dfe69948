"""The cache of earlier tokens while decoding.

Tensors have their shape in their name: B batch, T new tokens, S all tokens so far.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor


class Rows:
    """A tensor that grows along one dimension, in memory with room for more.

    A step writes its own rows and copies no earlier ones; where the room ends it is doubled.

    Args:
        dim: the dimension.
        room: rows to make room for at first.
    """

    def __init__(self, dim: int, room: int = 0):
        self.dim, self.room, self.count = dim, room, 0
        self._memory: Tensor | None = None

    def all(self) -> Tensor | None:
        """A view of all rows so far; None before the first."""
        return None if self._memory is None else self._memory.narrow(self.dim, 0, self.count)

    def append(self, new: Tensor) -> Tensor:
        """Add rows; returns a view of all of them, which later steps leave as it is."""
        old, before = self.all(), self.count
        self.count += new.shape[self.dim]
        if new.requires_grad or (old is not None and old.requires_grad):
            # A tensor of its own for every step: autograd keeps the earlier ones.
            self._memory = new if old is None else torch.cat((old, new), self.dim)
            return self._memory
        if self._memory is None or self.count > self._memory.shape[self.dim]:
            shape = list(new.shape)
            shape[self.dim] = max(self.room, 2 * before, self.count)
            self._memory = new.new_empty(shape)
            if old is not None:
                self._memory.narrow(self.dim, 0, before).copy_(old)
        self._memory.narrow(self.dim, before, self.count - before).copy_(new)
        return self.all()

    def replace(self, rows: Tensor) -> None:
        """Write other rows in place of all those so far."""
        self.count = 0
        self.append(rows)

    def select(self, index: Tensor) -> None:
        """Take sequences index [B] of the batch, the first dimension, instead of those there are."""
        if self._memory is not None:
            self._memory = self._memory.index_select(0, index)


class LayerCache:
    """The rows that one layer keeps of its tokens, each under a name: keys, values, features, and rows that
    its encodings keep themselves (`AttentionContext.rows`)."""

    def __init__(self, room: int = 0):
        self.room = room
        self.rows: dict[Hashable, Rows] = {}

    def named(self, name: Hashable, dim: int) -> Rows:
        """The rows under a name, along a dimension; none at first."""
        if name not in self.rows:
            self.rows[name] = Rows(dim, self.room)
        return self.rows[name]

    def append(self, name: Hashable, new: Tensor, dim: int) -> Tensor:
        """Add rows along a dimension; returns a view of all under this name."""
        return self.named(name, dim).append(new)

    def row_before(self, name: Hashable, new: Tensor, dim: int) -> Tensor | None:
        """The row before new ones along a dimension, None at the beginning; keeps their last one alone."""
        rows = self.rows.setdefault(name, Rows(dim))
        before = rows.all()
        before = None if before is None else before.clone()
        rows.replace(new.narrow(dim, -1, 1))
        return before


class Cache:
    """The cache of every layer, the positions [S] or [B,S] of the keys for each encoding, and the padding.

    Args:
        num_layers: of the model.
        room: tokens to make room for at first.
    """

    def __init__(self, num_layers: int, room: int = 0):
        self.layers = [LayerCache(room) for _ in range(num_layers)]
        self.room = room
        self.length = 0
        self.keep: Tensor | None = None
        """[B,S], False at padding; None as long as there is none."""
        self.consecutive = True
        """Whether the positions of all tokens so far are 0, 1, 2 ..."""
        self._keep, self._tokens = Rows(1, room), Rows(1, room)
        self._positions: dict[Hashable, tuple[Rows, Tensor]] = {}

    def extend_keep(self, keep: Tensor) -> Tensor:
        """Append the mask of the new tokens, [B,T], False at padding; returns that of all tokens."""
        if self.keep is None and self.length:
            self._keep.append(keep.new_ones(keep.shape[0], self.length))
        self.keep = self._keep.append(keep)
        return self.keep

    def extend_tokens(self, tokens: Tensor) -> Tensor:
        """Append the ids of the new tokens, [B,T]; returns those of all tokens."""
        return self._tokens.append(tokens)

    def extend_positions(self, owner: Hashable, pos: Tensor) -> Tensor:
        """Append an encoding's positions of the new tokens; returns those of all tokens."""
        rows, old = self._positions.get(owner, (Rows(-1, self.room), None))
        if old is not None and old.shape[:-1] != pos.shape[:-1]:
            batch = max(one.shape[0] if one.dim() == 2 else 1 for one in (old, pos))
            rows, pos = Rows(-1, self.room), pos.expand(batch, -1)
            rows.append(old.expand(batch, -1))
        pos = rows.append(pos)
        self._positions[owner] = rows, pos
        return pos

    def select(self, index: Tensor) -> None:
        """Take sequences index [B] of the batch instead of those there are, as beam search does."""
        for layer in self.layers:
            for rows in layer.rows.values():
                rows.select(index)
        self._keep.select(index)
        self._tokens.select(index)
        self.keep = None if self.keep is None else self._keep.all()
        for owner, (rows, positions) in self._positions.items():
            if positions.dim() == 2 and len(positions) > 1:
                rows.select(index)
                self._positions[owner] = rows, rows.all()
