"""Blocks of a token stream for next-token prediction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from zoo.data.batched import Batched
from zoo.data.text.tokens import TokenStream


class Blocks(Batched):
    """Windows of `length` tokens side by side; the targets are the same window one token on.

    `blocks[i]` is {"tokens": int64 [length], "targets": int64 [length]}; `batch(indices)` the same with a
    first axis. Documents run on within a window, an end token between them. The stream's last tokens that
    fill no window are left out.
    """

    def __init__(self, stream: TokenStream, length: int):
        self.stream = stream
        self.length = length

    def __len__(self) -> int:
        return max(0, len(self.stream) - 1) // self.length

    def batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        windows = np.empty((len(indices), self.length + 1), dtype=np.int64)
        for row, index in enumerate(indices):
            start = int(index) * self.length
            windows[row] = self.stream[start : start + self.length + 1]
        windows = torch.from_numpy(windows)
        return {"tokens": windows[:, :-1].contiguous(), "targets": windows[:, 1:].contiguous()}
