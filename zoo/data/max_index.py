"""Max-index: which place holds the first of the largest numbers? A toy that needs order and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from zoo.data.batched import Batched
from zoo.data.draws import Draws, below


class MaxIndex(Batched):
    """`size` sequences of `length` numbers drawn uniformly from 1..num_values.

    `data[i]` is {"tokens": int64 [length], "answer": int64 []}: `answer` is the index of the first largest.
    Sequence i depends on (seed, split, num_values, i), and at a greater length it begins with the shorter
    one. Token 0 is never used: the vocabulary has `num_values + 1`.
    """

    def __init__(self, length: int, num_values: int, seed: int, split: str, size: int):
        self.length = length
        self.num_values = num_values
        self.size = size
        self._draws = Draws("max_index", seed, split)

    def __len__(self) -> int:
        return self.size

    def batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        words = np.stack([self._draws.words(self.length, row=int(index)) for index in indices])
        tokens = 1 + below(words, self.num_values)
        # numpy's argmax gives the first of equals.
        return {"tokens": torch.from_numpy(tokens), "answer": torch.from_numpy(tokens.argmax(axis=1))}
