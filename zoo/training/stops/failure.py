"""What a run is said to have failed of: one message, from one of its processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta

import lightning.pytorch as pl
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from zoo.errors import InputError, RunError
from zoo.launch.reporting import quiet_exit
from zoo.memory import is_out_of_memory
from zoo.training.checkpoints.callbacks import LastCheckpoint
from zoo.training.checkpoints.resume import how_to_continue
from zoo.training.stops.room import Room


class Failure(Callback):
    """Turns what ends a run into what is told of it.

    Of processes that fail, whoever comes first tells why: all have the same to say, or the others have only
    lost the one that did.
    """

    def __init__(self, room: Room, last: LastCheckpoint):
        self.room, self.last = room, last
        self.rank = 0
        self.board: dist.TCPStore | None = None

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        if trainer.world_size == 1:
            return
        self.rank = trainer.global_rank
        # Apart from the process group, which is of no use once a process has left it.
        host, patience = os.environ.get("MASTER_ADDR", "127.0.0.1"), timedelta(minutes=1)
        make = {"timeout": patience, "wait_for_workers": False}
        board = dist.TCPStore(host, 0, is_master=True, **make) if self.rank == 0 else None
        port = trainer.strategy.broadcast(board.port if board else 0)
        self.board = board or dist.TCPStore(host, port, is_master=False, **make)

    def of(self, error: BaseException, step: int) -> BaseException:
        """What the run ends with in place of `error`, which came once `step` steps were done.

        A RunError where the cause is known, SystemExit in a process that has nothing to add, else the error.
        """
        if not isinstance(error, Exception):
            return error
        if not self.is_told_here():
            return quiet_exit(2 if isinstance(error, InputError) else 1)
        when = f"after step {step}" if step else "in the first step"
        text = self._cause(error, when)
        if text is None:
            if not isinstance(error, InputError | RunError):
                error.add_note(f"This was {when}. {self._saved()}")
            return error
        return RunError(f"process {self.rank}: {text}" if self.rank else text)

    def is_told_here(self) -> bool:
        """Whether this process is the first to ask, and so the one that tells."""
        if self.board is None:
            return True
        try:
            with _native_errors_hidden() if self.rank else nullcontext():
                return self.board.add("told", 1) == 1
        except (RuntimeError, ValueError):
            return False  # the board is gone, and with it the first process, which has told

    def _cause(self, error: BaseException, when: str) -> str | None:
        if is_out_of_memory(error):
            more = self.room.accumulate
            with_it = f" --set trainer.accumulate_grad_batches={more}" if more and self.last.saved_at else ""
            return f"{self.room.told(when)}. {self._saved()}{with_it}"
        text = str(error)
        if isinstance(error, RuntimeError) and text.startswith("DataLoader worker"):
            return (
                f"a data worker has died {when} ({text.rstrip(' .')}), mostly for want of memory: lower "
                f"data.workers, or set it to 0. {self._saved()}"
            )
        if isinstance(error, RuntimeError) and "returned nan values in its" in text:
            return (
                f"trainer.detect_anomaly: the gradient is not finite {when}: {text.rstrip('.')}; where "
                f"the forward pass called it, is told above. {self._saved()}"
            )
        return None

    def _saved(self) -> str:
        saved = self.last.saved_at
        if not saved:
            return "No checkpoint was written"
        return f"The last checkpoint is of step {saved}; {how_to_continue(self.last.folder, saved)}"


@contextmanager
def _native_errors_hidden() -> Iterator[None]:
    """Of a board that is gone torch's C++ prints a page, before it raises."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def failure_of(trainer: pl.Trainer) -> Failure:
    """The one among a trainer's callbacks."""
    return next(callback for callback in trainer.callbacks if isinstance(callback, Failure))
