"""Which of several processes that fail at the same time reports the error: the first that asks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta

import lightning.pytorch as pl
import torch.distributed as dist


class FirstReporter:
    """A store outside the process group, which cannot be used once a process has left it."""

    def __init__(self) -> None:
        self.rank = 0
        self._store: dist.TCPStore | None = None

    def connect(self, trainer: pl.Trainer) -> None:
        """Every process calls it, once they have met."""
        if trainer.world_size == 1:
            return
        self.rank = trainer.global_rank
        host = os.environ.get("MASTER_ADDR", "127.0.0.1")
        how = {"timeout": timedelta(minutes=1), "wait_for_workers": False}
        store = dist.TCPStore(host, 0, is_master=True, **how) if self.rank == 0 else None
        port = trainer.strategy.broadcast(store.port if store else 0)
        self._store = store or dist.TCPStore(host, port, is_master=False, **how)

    def is_first(self) -> bool:
        """Whether this process is the first that asks, and so the one that reports."""
        if self._store is None:
            return True
        try:
            with _native_stderr_hidden() if self.rank else nullcontext():
                return self._store.add("reported", 1) == 1
        except (RuntimeError, ValueError):
            return False  # the store is gone, and with it the first process, which has reported


@contextmanager
def _native_stderr_hidden() -> Iterator[None]:
    """Torch's C++ prints a page about a store that is gone, before it raises."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
