"""The state of a run: signals that stop it after a saved step, and the report of the error that ends it."""

from __future__ import annotations

import os
import shutil
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

from zoo.console import command
from zoo.errors import InputError, RunError
from zoo.files import is_disk_full
from zoo.launch.ranks import is_first_process, may_set_handlers
from zoo.runs.folder import RECIPE
from zoo.training.checkpoints import is_between_steps
from zoo.training.loggers import logging_fault
from zoo.training.module import TaskModule
from zoo.training.run import TrainingRun

# Requests to a process; of several processes the largest counts.
CONTINUE, STOP, REQUEUE = 0, 1, 2


class Stopped(Exception):
    """Ends Lightning's loop after the save; Lightning would turn a KeyboardInterrupt into its own exit."""


class RunStatus(Callback):
    """Stops a run on a signal, and turns the error that ends it into a report with the command that resumes.

    The first Ctrl-C or SIGTERM stops after a saved step, in all processes at the same step. SIGUSR1 under
    SLURM (`#SBATCH --signal=SIGUSR1@180`) also requests a requeue. A second signal stops at once, as does one
    before the first step or after the last. The first of the callbacks: before anything of a step is written.

    Attributes:
        run: None until it is known where it starts.
        request: CONTINUE, STOP or REQUEUE.
        due: all processes know of the request: this step is saved, and the next batch not begun.
    """

    def __init__(self) -> None:
        self.run: TrainingRun | None = None
        self.step = 0
        self.request = CONTINUE
        self.signalled = self.training = self.due = self.is_trained = False
        self.group: dist.ProcessGroup | None = None

    @contextmanager
    def reported(self) -> Iterator[RunStatus]:
        """Handle signals in the block, and end its error with a report; then restore their handlers."""
        before = {}
        if may_set_handlers():
            # Before its first step a further process has nothing to save, and may wait for others in native
            # code.
            handler = self._handle if is_first_process() else signal.SIG_DFL
            before = {number: signal.signal(number, handler) for number in _signals()}
        try:
            yield self
        except BaseException as error:
            self._ignore_signals()
            end = self._explain(error)
            if end is error:
                raise
            raise end from error
        finally:
            self._release()
            for number, handler in before.items():
                signal.signal(number, handler)

    def trained(self) -> None:
        """Training is over: let other processes write in the folder, and evaluate without the other ranks."""
        self._release()
        if self.request > CONTINUE:
            raise KeyboardInterrupt
        self.is_trained = True

    def setup(self, trainer: pl.Trainer, module: TaskModule, stage: str) -> None:
        # The first process has chosen the folder; the others learn of it here.
        self.run.folder = trainer.strategy.broadcast(self.run.folder)

    def on_train_start(self, trainer: pl.Trainer, module: TaskModule) -> None:
        self.step = trainer.global_step
        if trainer.world_size > 1:
            # On the CPU: does not wait for GPUs.
            self.group = dist.new_group(backend="gloo")
            if may_set_handlers():
                for number in _signals():
                    signal.signal(number, self._handle)
        self.training = True

    def on_train_batch_end(self, trainer: pl.Trainer, module: TaskModule, outputs: Any, *_: Any) -> None:
        is_step = trainer.global_step > self.step  # half of an accumulated step cannot be saved
        self.step = trainer.global_step
        if is_step:
            self._agree()

    def on_validation_end(self, trainer: pl.Trainer, module: TaskModule) -> None:
        if self.training and not trainer.sanity_checking and is_between_steps(trainer):
            self._agree()

    def on_train_batch_start(self, trainer: pl.Trainer, module: TaskModule, *_: Any) -> None:
        # Here and not at the end of the last batch, so that a validation of the same step still happens.
        if self.due:
            if self.group is not None:
                # The first process to leave may end all of them, and the card must be written before.
                dist.barrier(self.group)
            raise Stopped

    def on_train_end(self, trainer: pl.Trainer, module: TaskModule) -> None:
        self.training = False

    def on_exception(self, trainer: pl.Trainer, module: TaskModule, exception: BaseException) -> None:
        self.training = False
        self._ignore_signals()

    def _agree(self) -> None:
        """Take the largest request of all processes, so that they stop at the same step. A collective."""
        agreed = self.request
        if self.group is not None:
            request = torch.tensor(self.request)
            dist.all_reduce(request, dist.ReduceOp.MAX, self.group)
            agreed = int(request)
        self.due = agreed > CONTINUE
        if agreed > self.request:  # a signal that came meanwhile is kept for the next step
            self.request = agreed

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

    def _ignore_signals(self) -> None:
        """Ignore signals while the end of the run is reported; Ctrl-C ends the process.

        torchrun and SLURM send SIGTERM to the other processes once one has left.
        """
        for number in _signals() if may_set_handlers() else ():
            signal.signal(number, signal.SIG_DFL if number == signal.SIGINT else signal.SIG_IGN)

    def _explain(self, error: BaseException) -> BaseException:
        """The exception that ends the run instead of `error`, or `error` with a note."""
        run = self.run
        # Remove an empty run, and files that only take room on a full disk.
        if run and run.is_new and (self.step == 0 or (is_disk_full(error) and not run.saved_at)):
            self._release()
            shutil.rmtree(run.folder, ignore_errors=True)
        if _is_interruption(error):
            text = self._interrupted()
            if self.request == REQUEUE and is_first_process():
                # Printed before: SLURM may end this process as soon as it has the request.
                print(text, file=sys.stderr, flush=True)
                text = requeue()
            return KeyboardInterrupt(text)
        if isinstance(error, Exception) and (fault := logging_fault(error)):
            return fault
        known = isinstance(error, InputError | RunError) or not isinstance(error, Exception)
        if known or not (run and run.begun):
            return error
        if self.is_trained:
            error.add_note(f"The run is trained and saved; measure it: {command('evaluate', run.folder)}")
            return error
        state = "No checkpoint was written"
        if run.saved_at:
            state = f"The last checkpoint is of step {run.saved_at}; {run.how_to_continue}"
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            return RunError(f"another process of this run has ended. {state}")
        if str(error).startswith("DataLoader worker"):
            return RunError(f"{str(error).rstrip(' .')}: out of memory? Lower data.workers. {state}")
        error.add_note(f"This was {f'after step {self.step}' if self.step else 'in the first step'}. {state}")
        return error

    def _interrupted(self) -> str:
        """The step of an interrupted run, and the command that continues it."""
        run = self.run
        if run is None or not run.begun:
            return "interrupted before training began; nothing was written"
        # Until Lightning has restored a resumed run, it counts from 0.
        step = max(self.step, run.saved_at)
        text = "interrupted while it was evaluated" if self.is_trained else f"interrupted at step {step}"
        if not (run.saved_at or (run.folder / RECIPE).is_file()):
            return f"{text}; nothing was saved"
        saved = "saved" if run.saved_at == step else f"the last checkpoint is of step {run.saved_at}"
        return f"{text}; {saved if run.saved_at else 'nothing was saved'}; {run.how_to_continue}"

    def _release(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()  # the first process evaluates alone
        if self.run and self.run.lock:
            self.run.lock.release()


def _is_interruption(error: BaseException) -> bool:
    """Whether an error is or was caused by an interruption: Lightning turns Ctrl-C into its own exit, and
    the writer of torch fails on the incomplete file."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        return True
    return error.__context__ is not None and _is_interruption(error.__context__)


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
