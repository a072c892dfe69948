"""Ctrl-C, SIGTERM and SLURM's warning: the step in hand is finished and saved, then the run stops."""

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

# What is requested of a process; of several processes the largest counts.
GO_ON, STOP, REQUEUE = 0, 1, 2


class Stopped(Exception):
    """Ends Lightning's loop once it is saved; of a KeyboardInterrupt Lightning would make its own exit."""


class Interruption(Callback):
    """Turns the first Ctrl-C or SIGTERM into a stop at a step that was saved, in one process or several.

    So does SIGUSR1 under SLURM (`#SBATCH --signal=SIGUSR1@180`), which requests a requeue as well. A second
    signal stops at once, and so does one that comes before the first step or after the last.

    Attributes:
        request: GO_ON, STOP or REQUEUE.
        due: all processes know of the request: this step is saved, and the next batch not begun.
        by_hand: one of the signals was a Ctrl-C.
    """

    def __init__(self) -> None:
        self.request = GO_ON
        self.signalled = self.by_hand = self.ignoring = False
        self.due = False
        self.step = 0
        self.training = False
        self.group: dist.ProcessGroup | None = None
        self.pending: tuple[dist.Work, torch.Tensor] | None = None

    @contextmanager
    def handling(self, keep_ignoring: bool = False) -> Iterator[None]:
        """Handle the signals within the block, and restore the previous handlers after it.

        With `keep_ignoring` they are not restored after `ignore_signals`: the caller still has to report.
        """
        if not may_set_handlers():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in _signals()}
        try:
            yield
        finally:
            if not (keep_ignoring and self.ignoring):
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self.signalled = self.signalled, True
        self.by_hand |= number == signal.SIGINT
        requeue = number == signal.SIGUSR1
        self.request = max(self.request, REQUEUE if requeue else STOP)
        if again and requeue:
            return  # SLURM has warned the job and the step
        if again or not self.training:
            raise KeyboardInterrupt
        if is_first_process():
            # os.write: a handler may run in the middle of another print.
            text = "\nstopping when this step is done and saved; once more to stop at once\n"
            os.write(sys.__stderr__.fileno(), text.encode(errors="backslashreplace"))

    def ignore_signals(self) -> None:
        """Ignore signals while the end of the run is reported; a second Ctrl-C ends the process.

        torchrun and SLURM end a process once another has left, and torchrun hands on each Ctrl-C.
        """
        if self.ignoring or not may_set_handlers():
            return
        self.ignoring = True
        presses: list[int] = []

        def exit_at_second(number: int, frame: FrameType | None) -> None:
            presses.append(number)
            if len(presses) > 1:
                os._exit(130)

        # SIGINT last: it can be ended by hand at any time.
        for number in reversed(_signals()):
            signal.signal(number, exit_at_second if number == signal.SIGINT else signal.SIG_IGN)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.step = trainer.global_step
        if trainer.world_size > 1:
            # A group of its own, on the CPU: it neither waits for devices nor mixes with their collectives.
            self.group = dist.new_group(backend="gloo")
        self.training = True

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        if trainer.global_step > self.step:  # not within an accumulated batch: half a step cannot be saved
            self.step = trainer.global_step
            self._exchange()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.training and not trainer.sanity_checking and is_between_steps(trainer):
            self._exchange()
            self._receive()

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, index: int
    ) -> None:
        # Here and not at the end of the last batch, so that a validation of the same step still happens.
        if self.due:
            if self.group is not None:
                # The first that leaves may end all of them, and the card must be written before.
                dist.barrier(self.group)
            raise Stopped

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.training = False
        self._receive()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        # Another process may be gone: do not wait for its answer.
        self.training = False

    def _exchange(self) -> None:
        """Receive what was requested of the others, and send them what is requested of this one.

        All processes must save at the same step. What was sent after the last step has arrived while this one
        was computed: nobody waits.
        """
        if self.group is None:
            self.due = self.request > GO_ON
            return
        self._receive()
        if not self.due:
            request = torch.tensor([self.request])
            self.pending = dist.all_reduce(request, dist.ReduceOp.MAX, self.group, async_op=True), request

    def _receive(self) -> None:
        if self.pending is not None:
            work, requests = self.pending
            work.wait()
            self.pending = None
            self.request = max(self.request, int(requests))
            self.due = int(requests) > GO_ON


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
