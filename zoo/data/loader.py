"""Batches in an order that depends on (seed, epoch) alone, and that can be left and taken up again."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from zoo.data.draws import Draws, below
from zoo.errors import InputError, Problem
from zoo.launch.devices import batch_fault


@functools.lru_cache(maxsize=2)  # sorting a generated epoch takes longer than a few steps of a small model
def _order(seed: int, epoch: int, size: int) -> np.ndarray:
    return Draws("order", seed, epoch).permutation(size)


class EpochSampler:
    """The micro-batches of one rank.

    Optimizer step i of an epoch takes `permutation[i * batch_size : (i + 1) * batch_size]` with any number of
    ranks. Micro-batch m of rank r is the share (m * world_size + r) of it. The last, incomplete batch is
    dropped.

    Raises:
        InputError: ranks and accumulation do not divide the batch, or there is less than one.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        seed: int,
        *,
        accumulate: int = 1,
        rank: int = 0,
        world_size: int = 1,
    ):
        message = batch_fault(batch_size, world_size, 1, accumulate)
        if message is None and size < batch_size:
            message = (
                f"the training data holds {size} sequences and one batch wants {batch_size}; "
                "take more text, a shorter sequence_length or a smaller batch"
            )
        if message:
            raise InputError(Problem(message, key="data.batch_size"))
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.accumulate, self.rank, self.world_size = accumulate, rank, world_size
        self.share = batch_size // (world_size * accumulate)

    def __len__(self) -> int:
        return self.size // self.batch_size * self.accumulate

    def batches(self, epoch: int, start: int = 0) -> Iterator[np.ndarray]:
        """Index arrays of this rank's micro-batches of an epoch, from the `start`-th on."""
        order = _order(self.seed, epoch, self.size)
        for micro in range(start, len(self)):
            step, part = divmod(micro, self.accumulate)
            begin = step * self.batch_size + (part * self.world_size + self.rank) * self.share
            yield order[begin : begin + self.share]


def strided_batches(size: int, batch_size: int, rank: int = 0, world_size: int = 1) -> list[np.ndarray]:
    """Every index once over all ranks, in order: rank r has r, r + world_size, ... Nothing is padded, so
    ranks may differ by one index, and the last batch may be short."""
    indices = np.arange(rank, size, world_size)
    return [indices[start : start + batch_size] for start in range(0, len(indices), batch_size)]


class _ByBatch(Dataset):
    """Reads a batch of indices at once where the dataset can."""

    def __init__(self, dataset: Dataset):
        self.dataset = dataset

    def __getitem__(self, indices: np.ndarray) -> Any:
        if hasattr(self.dataset, "batch"):
            return self.dataset.batch(indices)
        return default_collate([self.dataset[int(index)] for index in indices])


def _leave_group(_worker: int) -> None:
    """torchrun signals the group of a process; the process itself stops its workers."""
    if hasattr(os, "setpgid"):  # not on Windows
        os.setpgid(0, 0)


def _read(dataset: Dataset, batches: Iterable[np.ndarray], workers: int) -> Iterator[Any]:
    # Without a batch size, each element of the sampler is passed to the dataset as it is: a batch of indices.
    how = {"sampler": batches, "num_workers": workers, "worker_init_fn": _leave_group}
    return iter(DataLoader(_ByBatch(dataset), batch_size=None, **how))


class Loader:
    """Batches of a dataset, given by their indices, once through at each iteration."""

    def __init__(self, dataset: Dataset, batches: Sequence[np.ndarray], workers: int = 0):
        self.dataset, self._batches, self._workers = dataset, batches, workers

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        return _read(self.dataset, self._batches, self._workers)


def _cut(batch: dict[str, torch.Tensor], length: int) -> dict[str, torch.Tensor]:
    """The tensors [B,T] of a batch as windows [B*T/length, length]; `documents` are rows of a window."""
    whole = batch["tokens"].shape[1]
    batch = {name: value.reshape(-1, length) for name, value in batch.items()}
    if "documents" in batch:
        start = torch.arange(len(batch["documents"]))[:, None] * length % whole
        batch["documents"] = (batch["documents"] - start).clamp(min=0)
    return batch


class ResumableLoader:
    """A stream of batches, epoch after epoch, that can be resumed; `len` is the micro-batches of an epoch.

    Iterating gives the rest of the current epoch. After its last batch the state is the beginning of the next
    epoch, which is a new permutation.

    Args:
        lengths: each optimizer step cuts its sequences [B, T] into windows of one of these lengths, drawn
            from seed, epoch and step, [B * T / length, length]. Empty: they stay whole.
    """

    def __init__(
        self, dataset: Dataset, sampler: EpochSampler, workers: int = 0, lengths: Sequence[int] = ()
    ):
        self.dataset, self._sampler, self._workers, self._lengths = dataset, sampler, workers, lengths
        self._epoch, self._handed_out = 0, 0

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        # Workers copy the dataset when they start, so it must know the epoch before.
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(self._epoch)
        batches = self._sampler.batches(self._epoch, self._handed_out)
        lengths = Draws("lengths", self._sampler.seed, self._epoch)
        for batch in _read(self.dataset, batches, self._workers):
            if self._lengths:
                word = lengths.words(1, row=self._handed_out // self._sampler.accumulate)
                length = self._lengths[int(below(word, len(self._lengths))[0])]
                batch = _cut(batch, length)
            # Counted before it is handed out: a caller that asks for the state then has the batch.
            self._handed_out += 1
            if self._handed_out == len(self):
                self._epoch, self._handed_out = self._epoch + 1, 0
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; nothing happens if it is the current one."""
        if epoch != self._epoch:
            self._epoch, self._handed_out = epoch, 0

    def state_dict(self) -> dict[str, int]:
        """{"epoch", "batches", "accumulate"}: the next micro-batch, `accumulate` of which are a step.

        Batches that workers prepared ahead do not count. The state is the same on every rank.
        """
        return {"epoch": self._epoch, "batches": self._handed_out, "accumulate": self._sampler.accumulate}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue at a `state_dict`: at the same optimizer step if `accumulate` differs here."""
        self._epoch = state["epoch"]
        self._handed_out = state["batches"] * self._sampler.accumulate // state["accumulate"]
