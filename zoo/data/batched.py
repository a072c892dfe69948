"""Datasets that make many examples at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.data import Dataset


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
