"""Keys, values and positions of earlier tokens, kept while decoding.

Tensors have their shape in their name: B batch, S keys, G key heads, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class LayerCache:
    """One layer's keys and values [B,G,S,D], and what each encoding's `read` returned for the tokens.

    Keys are kept unrotated so that an encoding whose angles depend on the length stays exact as it grows.
    """

    k_BGSD: Tensor | None = None
    v_BGSD: Tensor | None = None
    read: list[Tensor | None] = field(default_factory=list)

    def extend(
        self, k_BGSD: Tensor, v_BGSD: Tensor, read: list[Tensor | None]
    ) -> tuple[Tensor, Tensor, list[Tensor | None]]:
        """Append the new tokens; returns keys, values and `read` of all tokens."""
        if self.k_BGSD is None or self.v_BGSD is None:
            self.k_BGSD, self.v_BGSD, self.read = k_BGSD, v_BGSD, read
        else:
            self.k_BGSD = torch.cat((self.k_BGSD, k_BGSD), -2)
            self.v_BGSD = torch.cat((self.v_BGSD, v_BGSD), -2)
            self.read = [
                new if old is None or new is None else torch.cat((old, new), 1)
                for old, new in zip(self.read, read, strict=True)
            ]
        return self.k_BGSD, self.v_BGSD, self.read


class Cache:
    """The cache of every layer, the positions [S] or [B,S] of the keys for each encoding, and the padding."""

    def __init__(self, num_layers: int):
        self.layers = [LayerCache() for _ in range(num_layers)]
        self.length = 0
        self.keep: Tensor | None = None
        self.consecutive = True
        """Whether the positions of all tokens so far are 0, 1, 2 ..."""
        self._positions: dict[int, Tensor] = {}

    def extend_positions(self, owner: object, pos: Tensor) -> Tensor:
        """Append an encoding's positions of the new tokens; returns those of all tokens."""
        old = self._positions.get(id(owner))
        if old is not None:
            if old.dim() != pos.dim():
                rows = max(old.shape[0] if old.dim() == 2 else 1, pos.shape[0] if pos.dim() == 2 else 1)
                old, pos = old.expand(rows, -1), pos.expand(rows, -1)
            pos = torch.cat((old, pos), -1)
        self._positions[id(owner)] = pos
        return pos
