"""Blocks of a token stream, for next-token prediction and for masked language modelling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.utils.data import Dataset

from zoo.data.draws import Draws, below, unit
from zoo.data.text.tokenizer import TextTokenizer
from zoo.data.text.tokens import TokenStream

NOT_SCORED = -100
WORDS_PER_TOKEN = 4  # one Philox counter a token: whether it is chosen, its fate, the random token


class Batched(Dataset):
    """A dataset whose examples are made in batches; a single one is the batch of its index."""

    def __len__(self) -> int:
        raise NotImplementedError

    def batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """The examples of several indices, with a first axis."""
        raise NotImplementedError

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return {name: values[0] for name, values in self.batch([index]).items()}


class Blocks(Batched):
    """Adjacent windows of `length` tokens; the targets are the same window shifted by one token.

    `blocks[i]` is {"tokens": int64 [length], "targets": int64 [length]}; `batch(indices)` the same with a
    first axis. Documents run on within a window, an end token between them; with `separate` a batch also has
    `documents`, see `TokenStream.document_rows`. The stream's last tokens that fill no window are left out.
    """

    def __init__(self, stream: TokenStream, length: int, separate: bool = False):
        self.stream, self.length, self.separate = stream, length, separate

    def __len__(self) -> int:
        return max(0, len(self.stream) - 1) // self.length

    def batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        windows = torch.from_numpy(_windows(self.stream, indices, self.length, self.length + 1))
        made = {"tokens": windows[:, :-1].contiguous(), "targets": windows[:, 1:].contiguous()}
        return made | (_documents(self.stream, indices, self.length) if self.separate else {})


def _windows(stream: TokenStream, indices: Sequence[int], stride: int, length: int) -> np.ndarray:
    """Windows of `length` tokens, int64 [B,length]; window i begins at `i * stride`."""
    windows = np.empty((len(indices), length), dtype=np.int64)
    for row, index in enumerate(indices):
        start = int(index) * stride
        windows[row] = stream[start : start + length]
    return windows


def _documents(
    stream: TokenStream, indices: Sequence[int], length: int, opened: bool = True
) -> dict[str, torch.Tensor]:
    starts = [int(index) * length for index in indices]
    rows = np.stack([stream.document_rows(start, start + length, opened) for start in starts])
    return {"documents": torch.from_numpy(rows)}


class MaskedBlocks(Batched):
    """Adjacent windows of `length` tokens, some of which are hidden and predicted.

    Each token but the end token is chosen with probability `mask_fraction`; of the chosen 80 % become the
    mask token, 10 % a random token that is not special, 10 % stay. `blocks[i]` is {"tokens": int64 [length],
    "targets": int64 [length]}, targets -100 where not chosen. Source: Devlin et al. 2019 (arXiv:1810.04805),
    section 3.1.

    The choice depends on (seed, epoch) and the token's position in the stream, and not on `length`: the same
    targets are scored at every evaluation length. `set_epoch` draws again; epoch None, for validation, is a
    draw of its own that never changes.
    """

    def __init__(
        self,
        stream: TokenStream,
        length: int,
        mask_fraction: float,
        tokenizer: TextTokenizer,
        seed: int,
        epoch: int | None = None,
        separate: bool = False,
    ):
        self.stream, self.length, self.mask_fraction = stream, length, mask_fraction
        self.separate = separate
        self.mask_token, self.end_token = tokenizer.mask_token, tokenizer.end_token
        # Special tokens and ids that are not in use have no bytes.
        self.ordinary = np.flatnonzero([len(raw) > 0 for raw in tokenizer.token_bytes()])
        self.seed, self.epoch = seed, epoch

    def set_epoch(self, epoch: int) -> None:
        """Draw other tokens from now on; no effect on a fixed draw."""
        if self.epoch is not None:
            self.epoch = epoch

    def __len__(self) -> int:
        return len(self.stream) // self.length

    def batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        tokens = _windows(self.stream, indices, self.length, self.length)
        draws = Draws("mask", self.seed, "fixed" if self.epoch is None else self.epoch)
        count = self.length * WORDS_PER_TOKEN
        words = np.stack([draws.words(count, start=int(index) * self.length) for index in indices])
        words = words.reshape(*tokens.shape, WORDS_PER_TOKEN)
        chosen = (unit(words[..., 0]) < self.mask_fraction) & (tokens != self.end_token)
        fate = unit(words[..., 1])
        random_token = self.ordinary[below(words[..., 2], len(self.ordinary))]
        targets = np.where(chosen, tokens, NOT_SCORED)
        tokens = np.where(chosen & (fate < 0.8), self.mask_token, tokens)
        tokens = np.where(chosen & (fate >= 0.9), random_token, tokens)
        made = {"tokens": torch.from_numpy(tokens), "targets": torch.from_numpy(targets)}
        return made | (_documents(self.stream, indices, self.length, opened=False) if self.separate else {})
