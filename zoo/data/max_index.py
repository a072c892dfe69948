"""Max-index: at which index is the first of the largest numbers? A toy that needs order and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from zoo.data import Dataset
from zoo.data.blocks import Batched
from zoo.data.draws import Draws, below, is_held_out
from zoo.data.source import DataSource, GeneratedSource
from zoo.recipe import Recipe
from zoo.recipe.fields import Positive
from zoo.registry import register

BEGINNING, FEWEST = 16, 1200
"""A sequence is held out by its first 16 numbers, where there are at least 1200 such beginnings."""


@register.dataset("max_index")
class MaxIndexDataset(Dataset):
    """Random tokens; the answer is the index of the first largest.

    Args:
        num_values: tokens are drawn from 1 to this number.
        order: `independent`, as published: all tokens are drawn alike. With 19 values the answer then lies
            within the first 64 tokens in 97 % of all sequences, however long they are. `uniform`: the answer
            is equally likely at every position. Tokens before it are smaller than the largest, tokens after
            it at most as large, and the largest is drawn for each sequence.
    """

    gives = "pointer"

    def __init__(
        self, *, num_values: Positive = 19, order: Literal["independent", "uniform"] = "independent"
    ):
        if order == "uniform" and num_values < 2:
            raise ValueError("order uniform needs num_values of at least 2")
        self.num_values, self.order = num_values, order

    @property
    def vocab_size(self) -> int:
        return self.num_values + 1

    def open(self, recipe: Recipe) -> DataSource:
        answers = ", answers uniform over positions" if self.order == "uniform" else ""
        corpus = f"max_index of {self.num_values} values{answers}, format 2"
        draw = functools.partial(MaxIndex, num_values=self.num_values, uniform=self.order == "uniform")
        return GeneratedSource(recipe, self.gives, self.vocab_size, corpus, draw)


class MaxIndex(Batched):
    """`size` sequences of `length` numbers from 1..num_values, drawn as `MaxIndexDataset` says.

    `data[i]` is {"tokens": int64 [length], "answer": int64 []}: `answer` is the index of the first largest.
    Sequence i depends on (seed, split, num_values, i); of independent numbers, at a greater length than 16 it
    begins with the shorter one. Token 0 is never used: the vocabulary has `num_values + 1`.

    `sizes` is not used: all sequences have `length` numbers.

    Sequences of "valid" and "test" are held out: training with any seed draws none of them
    (`zoo.data.draws`), unless they are so short that too few exist.
    """

    def __init__(
        self,
        length: int,
        num_values: int,
        seed: int,
        split: str,
        size: int,
        sizes: str = "",
        uniform: bool = False,
    ):
        self.length, self.num_values, self.size, self.uniform = length, num_values, size, uniform
        # With a uniform answer the beginning is often the same: the whole sequence decides.
        self._beginning = length if uniform else min(length, BEGINNING)
        self._held_out = split != "train" if num_values**self._beginning >= FEWEST else None
        self._draws = Draws("max_index", seed, split)

    def __len__(self) -> int:
        return self.size

    def batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        tokens = np.stack([self._numbers(self.length, self._row(int(index))) for index in indices])
        # numpy's argmax gives the first of equals.
        return {"tokens": torch.from_numpy(tokens), "answer": torch.from_numpy(tokens.argmax(axis=1))}

    def seen_in_training(self, length: int) -> float:
        """The share of these sequences, from 0 to 1, that training at a length may have drawn too: 1 where
        too few exist to hold any out."""
        return float(self._held_out is None and self.length == length)

    def _row(self, row: int) -> int:
        """The row of an example: the first of its tries that begins on the split's own side."""
        if self._held_out is not None:
            while is_held_out(self._numbers(self._beginning, row)) != self._held_out:
                row += 1 << 32
        return row

    def _numbers(self, count: int, row: int) -> np.ndarray:
        if not self.uniform:
            return 1 + below(self._draws.words(count, row=row), self.num_values)
        words = self._draws.words(count + 2, row=row)
        answer, largest = int(below(words[:1], count)[0]), 2 + int(below(words[1:2], self.num_values - 1)[0])
        before, after = words[2 : 2 + answer], words[3 + answer :]
        return 1 + np.concatenate([below(before, largest - 1), [largest - 1], below(after, largest)])
