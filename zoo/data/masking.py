"""Blocks of a token stream for masked language modelling: Devlin et al. 2019 (arXiv:1810.04805), 3.1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from zoo.data.batched import Batched
from zoo.data.draws import Draws, below, unit
from zoo.data.text.tokenizer import SPECIAL
from zoo.data.text.tokens import TokenStream

NOT_SCORED = -100
WORDS_PER_TOKEN = 4  # one Philox counter a token: is it chosen, what becomes of it, which random token


class MaskedBlocks(Batched):
    """Windows of `length` tokens side by side, in which some are to be guessed.

    Each token but the end token is chosen with probability `mask_fraction`; of the chosen 80 % become the
    mask token, 10 % a random token, 10 % stay. `blocks[i]` is {"tokens": int64 [length], "targets": int64
    [length]}, targets -100 where not chosen.

    What is chosen depends on (seed, epoch) and the token's position in the stream alone: not on ranks or
    workers, nor on `length`, so that the same targets are scored at every evaluation length. `set_epoch`
    draws anew; epoch None, for validation, is a draw of its own that never changes.
    """

    def __init__(
        self,
        stream: TokenStream,
        length: int,
        *,
        mask_fraction: float,
        mask_token: int,
        end_token: int,
        vocab_size: int,
        seed: int,
        epoch: int | None = None,
    ):
        self.stream = stream
        self.length = length
        self.mask_fraction = mask_fraction
        self.mask_token = mask_token
        self.end_token = end_token
        self.vocab_size = vocab_size
        self.seed = seed
        self.epoch = epoch

    def set_epoch(self, epoch: int) -> None:
        """Draw other tokens from now on; no effect on a fixed draw."""
        if self.epoch is not None:
            self.epoch = epoch

    def __len__(self) -> int:
        return len(self.stream) // self.length

    def batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        tokens = np.empty((len(indices), self.length), dtype=np.int64)
        words = np.empty((len(indices), self.length, WORDS_PER_TOKEN), dtype=np.uint64)
        draws = Draws("mask", self.seed, "fixed" if self.epoch is None else self.epoch)
        for row, index in enumerate(indices):
            start = int(index) * self.length
            tokens[row] = self.stream[start : start + self.length]
            words[row] = draws.words(self.length * WORDS_PER_TOKEN, start=start).reshape(self.length, -1)
        chosen = (unit(words[..., 0]) < self.mask_fraction) & (tokens != self.end_token)
        fate = unit(words[..., 1])
        random_token = len(SPECIAL) + below(words[..., 2], self.vocab_size - len(SPECIAL))
        targets = np.where(chosen, tokens, NOT_SCORED)
        tokens = np.where(chosen & (fate < 0.8), self.mask_token, tokens)
        tokens = np.where(chosen & (fate >= 0.9), random_token, tokens)
        return {"tokens": torch.from_numpy(tokens), "targets": torch.from_numpy(targets)}
