"""What is kept of earlier tokens while decoding."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class LayerCache:
    """One layer's past: keys and values [B,H,S,D], and what each encoding read of the tokens.

    Keys are kept unrotated so that an encoding whose angles depend on the length stays exact as it grows.
    """

    k: Tensor | None = None
    v: Tensor | None = None
    read: list[Tensor | None] = field(default_factory=list)

    def extend(
        self, k: Tensor, v: Tensor, read: list[Tensor | None]
    ) -> tuple[Tensor, Tensor, list[Tensor | None]]:
        """Add the new tokens and give back all tokens."""
        if self.k is None or self.v is None:
            self.k, self.v, self.read = k, v, read
        else:
            self.k, self.v = torch.cat((self.k, k), -2), torch.cat((self.v, v), -2)
            self.read = [
                new if old is None or new is None else torch.cat((old, new), 1)
                for old, new in zip(self.read, read, strict=True)
            ]
        return self.k, self.v, self.read


class Cache:
    """The past of every layer; the positions [S] or [B,S] that each encoding gave its keys; the padding."""

    def __init__(self, num_layers: int):
        self.layers = [LayerCache() for _ in range(num_layers)]
        self.length = 0
        self.keep: Tensor | None = None
        self.consecutive = True
        """Every token so far stands one after the one before it, the first at 0."""
        self._positions: dict[int, Tensor] = {}

    def extend_positions(self, owner: object, pos: Tensor) -> Tensor:
        """Add the positions that an encoding gives to the new tokens, and give back those of all tokens."""
        old = self._positions.get(id(owner))
        if old is not None:
            if old.dim() != pos.dim():
                rows = max(old.shape[0] if old.dim() == 2 else 1, pos.shape[0] if pos.dim() == 2 else 1)
                old, pos = old.expand(rows, -1), pos.expand(rows, -1)
            pos = torch.cat((old, pos), -1)
        self._positions[id(owner)] = pos
        return pos
