"""Ctrl-C, SIGTERM and SLURM's warning: the step in hand is finished and saved, then the run stops."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from zoo.launch.ranks import is_first_process
from zoo.training.boundary import is_between_steps

# What a process wishes; of several processes the largest holds.
GO_ON, STOP, REQUEUE = 0, 1, 2


class Stopped(Exception):
    """Ends Lightning's loop once it is saved; of a KeyboardInterrupt Lightning would make its own exit."""


class Interruption(Callback):
    """Turns the first Ctrl-C or SIGTERM into a stop at a step that was saved, in one process or several.

    So does SIGUSR1 under SLURM (`#SBATCH --signal=SIGUSR1@90`), which asks to be requeued as well. `wish` is
    GO_ON, STOP or REQUEUE; `due` says that the checkpoint of this step is wanted, now
    that all processes know; the next batch is then not begun. A second signal stops at once, and so does one
    that comes while there is nothing to finish: before the first step, or after the last. `by_hand` tells
    whether one was a Ctrl-C.
    """

    def __init__(self) -> None:
        self.wish = GO_ON
        self.signalled = self.by_hand = self.deaf = False
        self.due = False
        self.step = 0
        self.training = False
        self.group: dist.ProcessGroup | None = None
        self.asking: tuple[dist.Work, torch.Tensor] | None = None

    @property
    def asked(self) -> bool:
        return self.wish > GO_ON

    @contextmanager
    def handling(self, stay_deaf: bool = False) -> Iterator[None]:
        """Have the signals until the block ends; then they are again whose they were.

        With `stay_deaf` they are not where this process was deafened: its caller has an end to tell.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # Python lets no other thread have handlers
            return
        signals = [signal.SIGINT, signal.SIGTERM]
        if "SLURM_JOB_ID" in os.environ:
            signals.append(signal.SIGUSR1)
        before = {number: signal.signal(number, self._hear) for number in signals}
        try:
            yield
        finally:
            if not (stay_deaf and self.deaf):
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        again, self.signalled = self.signalled, True
        self.by_hand |= number == signal.SIGINT
        requeue = "SLURM_JOB_ID" in os.environ and number == signal.SIGUSR1
        self.wish = max(self.wish, REQUEUE if requeue else STOP)
        if again and requeue:
            return  # SLURM has warned the job and the step
        if again or not self.training:
            raise KeyboardInterrupt
        if is_first_process():
            # os.write: a handler may run in the midst of another print.
            text = "\nstopping when this step is done and saved; once more to stop at once\n"
            os.write(sys.__stderr__.fileno(), text.encode(errors="backslashreplace"))

    def deafen(self) -> None:
        """Take no more signals: what is left is to tell how the run ended. A second Ctrl-C ends it untold.

        torchrun and SLURM end a process once another has left, and torchrun hands on each Ctrl-C.
        """
        if self.deaf or threading.current_thread() is not threading.main_thread():
            return
        self.deaf = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if "SLURM_JOB_ID" in os.environ:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        # Last: it can be ended by hand at any time.
        signal.signal(signal.SIGINT, _Impatience())

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.step = trainer.global_step
        if trainer.world_size > 1:
            # Of its own, between CPUs: asking neither waits for devices nor mixes with what they send.
            self.group = dist.new_group(backend="gloo")
        self.training = True

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        step = trainer.global_step
        if step == self.step:
            return  # within an accumulated batch; half a step cannot be saved
        self.step = step
        if self.group is None:
            self.due = self.asked
            return
        # All processes must save at the same step. What was asked after the last step has been answered while
        # this one was computed; nobody waits.
        self._hear_the_others()
        if not self.due:
            self._ask_the_others()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.sanity_checking or not self.training or not is_between_steps(trainer):
            return
        if self.group is None:
            self.due = self.asked
            return
        self._hear_the_others()
        if not self.due:
            self._ask_the_others()
            self._hear_the_others()

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, index: int
    ) -> None:
        # Here and not at the end of the last batch, so that a validation of the same step still happens.
        if self.due:
            if self.group is not None:
                # The first that leaves may be the end of all; the card must be written.
                dist.barrier(self.group)
            raise Stopped

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.training = False
        self._hear_the_others()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        # Another process may be gone: what was asked last is not waited for.
        self.training = False

    def _ask_the_others(self) -> None:
        wishes = torch.tensor([self.wish])
        self.asking = dist.all_reduce(wishes, dist.ReduceOp.MAX, self.group, async_op=True), wishes

    def _hear_the_others(self) -> None:
        if self.asking is not None:
            work, wishes = self.asking
            work.wait()
            self.asking = None
            self.wish = max(self.wish, int(wishes))
            self.due = int(wishes) > GO_ON


class _Impatience:
    """Hears of Ctrl-C: the first changes nothing, with the second the process is gone."""

    def __init__(self) -> None:
        self.heard = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.heard += 1
        if self.heard > 1:
            os._exit(130)
