"""Ctrl-C, SIGTERM and the warning of SLURM: the step is finished and saved, then the run stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from zoo.launch.ranks import is_first_process
from zoo.launch.signals import may_set_handlers
from zoo.training.checkpoints import is_between_steps

# Requests to a process; of several processes the largest counts.
CONTINUE, STOP, REQUEUE = 0, 1, 2


class Stopped(Exception):
    """Ends Lightning's loop after the save; Lightning would turn a KeyboardInterrupt into its own exit."""


class Interruption(Callback):
    """Turns the first Ctrl-C or SIGTERM into a stop after a saved step, in all processes at the same step.

    SIGUSR1 under SLURM (`#SBATCH --signal=SIGUSR1@180`) also requests a requeue. A second signal stops at
    once, as does one before the first step or after the last.

    Attributes:
        request: CONTINUE, STOP or REQUEUE.
        due: all processes know of the request: this step is saved, and the next batch not begun.
    """

    def __init__(self) -> None:
        self.request = CONTINUE
        self.signalled = self.ignoring = self.training = self.due = False
        self.step = 0
        self.group: dist.ProcessGroup | None = None

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Handle the signals within the block, and restore the previous handlers after it."""
        if not may_set_handlers():
            yield
            return
        # Before its first step a further process has nothing to save, and may wait for others in native code.
        handler = self._handle if is_first_process() else signal.SIG_DFL
        before = {number: signal.signal(number, handler) for number in _signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self.signalled = self.signalled, True
        requeue = number == signal.SIGUSR1
        self.request = max(self.request, REQUEUE if requeue else STOP)
        if again and requeue:
            return  # SLURM warns the job and the step
        if again or not self.training:
            raise KeyboardInterrupt
        if is_first_process():
            # os.write: a handler may run in the middle of another print.
            text = "\nstopping when this step is done and saved; once more to stop at once\n"
            os.write(sys.__stderr__.fileno(), text.encode(errors="backslashreplace"))

    def ignore_signals(self) -> None:
        """Ignore signals while the end of the run is reported; Ctrl-C ends the process.

        torchrun and SLURM send SIGTERM to the other processes once one has left.
        """
        if not self.ignoring and may_set_handlers():
            self.ignoring = True
            for number in _signals():
                signal.signal(number, signal.SIG_DFL if number == signal.SIGINT else signal.SIG_IGN)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.step = trainer.global_step
        if trainer.world_size > 1:
            # On the CPU: does not wait for GPUs.
            self.group = dist.new_group(backend="gloo")
            if may_set_handlers():
                for number in _signals():
                    signal.signal(number, self._handle)
        self.training = True

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        if trainer.global_step > self.step:  # half of an accumulated step cannot be saved
            self.step = trainer.global_step
            self._agree()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.training and not trainer.sanity_checking and is_between_steps(trainer):
            self._agree()

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, index: int
    ) -> None:
        # Here and not at the end of the last batch, so that a validation of the same step still happens.
        if self.due:
            if self.group is not None:
                # The first process to leave may end all of them, and the card must be written before.
                dist.barrier(self.group)
            raise Stopped

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.training = False

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        self.training = False

    def _agree(self) -> None:
        """Take the largest request of all processes, so that they stop at the same step. A collective."""
        if self.group is not None:
            request = torch.tensor(self.request)
            dist.all_reduce(request, dist.ReduceOp.MAX, self.group)
            self.request = int(request)
        self.due = self.request > CONTINUE


def _signals() -> list[signal.Signals]:
    slurm = [signal.SIGUSR1] if "SLURM_JOB_ID" in os.environ else []
    return [signal.SIGINT, signal.SIGTERM, *slurm]


def requeue() -> str:
    """Put this SLURM job back into its queue; returns the outcome in words. SLURM may end this process at
    once."""
    job = os.environ["SLURM_JOB_ID"]
    try:
        subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60, check=True)
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip() or str(error)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    else:
        return f"job {job} is requeued"
    return f"job {job} could not be requeued ({why}); continue by hand, with the command above"
