"""Ctrl-C: the step in hand is finished and saved, then the run stops."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback


class Stopped(Exception):
    """Ends Lightning's loop once it is saved; of a KeyboardInterrupt Lightning would make its own exit."""


class Interruption(Callback):
    """Turns the first Ctrl-C (or SIGTERM, in a run of one process) into a stop at a step that was saved.

    `due` says that the checkpoint of this step is wanted, now that all processes know; the next batch is then
    not begun. A second signal stops at once.
    """

    def __init__(self) -> None:
        self.asked = False
        self.due = False
        self.step = 0
        self.installed = False
        # Taken now: while it fits, Lightning has handlers of its own.
        self.before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.step = trainer.global_step
        if threading.current_thread() is not threading.main_thread():
            return  # Python lets no other thread have handlers
        signals = [signal.SIGINT]
        # SLURM and launchers of several processes have a meaning of their own for SIGTERM.
        if trainer.world_size == 1 and "SLURM_JOB_ID" not in os.environ:
            signals.append(signal.SIGTERM)
        loud = trainer.is_global_zero

        def ask(number: int, frame: FrameType | None) -> None:
            if self.asked:
                raise KeyboardInterrupt
            self.asked = True
            if loud:
                # os.write: a handler may run in the midst of another print.
                text = "\nstopping when this step is done and saved; once more to stop at once\n"
                os.write(sys.__stderr__.fileno(), text.encode())

        for number in signals:
            signal.signal(number, ask)
        self.installed = True

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        step = trainer.global_step
        if step == self.step:
            return  # within an accumulated batch; half a step cannot be saved
        self.step = step
        if trainer.world_size == 1:
            self.due = self.asked
        elif step % trainer.log_every_n_steps == 0:
            # All processes must save at the same step; asking each other after every one would cost too much.
            self.due = trainer.strategy.reduce_boolean_decision(self.asked, all=False)

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, index: int
    ) -> None:
        # Here and not at the end of the last batch, so that a validation of the same step still happens.
        if self.due:
            raise Stopped

    def restore(self) -> None:
        """Give the signals back to whoever had them."""
        if self.installed:
            for number, handler in self.before.items():
                signal.signal(number, handler)
