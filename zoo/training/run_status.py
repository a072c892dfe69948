"""The progress of a run, and the report of the error that ends it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from zoo.errors import InputError, RunError
from zoo.files import is_disk_full
from zoo.launch.ranks import is_first_process
from zoo.runs.folder import RECIPE, give_up
from zoo.runs.lock import RunLock
from zoo.training.checkpoints import LastCheckpoint
from zoo.training.interruption import CONTINUE, REQUEUE, Interruption, Stopped, requeue
from zoo.training.resume import how_to_continue


class RunStatus(Callback):
    """Turns the error that ends a run into a report with the last checkpoint and the command that resumes.

    Attributes:
        new: the folder of a new run, and whether it was made for it.
        lock: the lock of the folder, in the process that writes.
        last: a callback of the trainer; None until there is one.
    """

    def __init__(self) -> None:
        self.interruption = Interruption()
        self.new: tuple[Path, bool] | None = None
        self.lock: RunLock | None = None
        self.last: LastCheckpoint | None = None
        self.step = 0
        self.is_trained = False

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Handle signals in the block, and end its error with a report."""
        with self.interruption.handling():
            try:
                yield
            except BaseException as error:
                self.interruption.ignore_signals()
                end = self._explain(error)
                if isinstance(end, KeyboardInterrupt) and is_first_process():
                    end = self._requeued(end)
                if end is error:
                    raise
                raise end from error
            finally:
                self._release()

    def trained(self) -> None:
        """Training is over: let other processes write in the folder, and evaluate without the other ranks."""
        self._release()
        if self.interruption.request > CONTINUE:
            raise KeyboardInterrupt
        self.is_trained = True

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.step = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        # The first of the callbacks: before anything of this step is written.
        self.step = trainer.global_step
        self._validate_folder()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._validate_folder()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        self.interruption.ignore_signals()

    def _explain(self, error: BaseException) -> BaseException:
        """The exception that ends the run instead of `error`, or `error` with a note."""
        saved = self.last.saved_at if self.last else 0
        is_gone = self.lock is not None and self.lock.is_gone()
        # Remove an empty run, and files that only take room on a full disk.
        if self.new and not is_gone and (self.step == 0 or (is_disk_full(error) and not saved)):
            self._release()
            self.lock = None
            give_up(*self.new)
        if _is_interruption(error):
            return KeyboardInterrupt(self._interrupted())
        if is_gone:
            return self.lock.gone()
        if self.last is None or isinstance(error, InputError | RunError) or not isinstance(error, Exception):
            return error
        if self.is_trained:
            evaluate = shlex.join(["python", "-m", "zoo", "evaluate", str(self.last.folder)])
            error.add_note(f"The run is trained and saved; measure it: {evaluate}")
            return error
        how = how_to_continue(self.last.folder, saved)
        state = f"The last checkpoint is of step {saved}; {how}" if saved else "No checkpoint was written"
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            return RunError(f"another process of this run has ended. {state}")
        if str(error).startswith("DataLoader worker"):
            return RunError(f"{str(error).rstrip(' .')}: out of memory? Lower data.workers. {state}")
        error.add_note(f"This was {f'after step {self.step}' if self.step else 'in the first step'}. {state}")
        return error

    def _interrupted(self) -> str:
        """The step of an interrupted run, and the command that continues it."""
        last = self.last
        if last is None:
            return "interrupted before training began; nothing was written"
        # Until Lightning has restored a resumed run, it counts from 0.
        step = max(self.step, last.saved_at)
        text = "interrupted while it was evaluated" if self.is_trained else f"interrupted at step {step}"
        if self.lock is not None and self.lock.is_gone():
            return f"{text}; {self.lock.gone()}"
        if not (last.saved_at or (last.folder / RECIPE).is_file()):
            return f"{text}; nothing was saved"
        saved = "saved" if last.saved_at == step else f"the last checkpoint is of step {last.saved_at}"
        how = how_to_continue(last.folder, last.saved_at)
        return f"{text}; {saved if last.saved_at else 'nothing was saved'}; {how}"

    def _requeued(self, end: KeyboardInterrupt) -> KeyboardInterrupt:
        """After the warning of SLURM: the end with the outcome of the request to requeue."""
        if self.interruption.request < REQUEUE:
            return end
        # Printed before: SLURM may end this process as soon as it has the request.
        print(end, file=sys.stderr, flush=True)
        return KeyboardInterrupt(requeue())

    def _release(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()  # the first process evaluates alone
        if self.lock:
            self.lock.release()

    def _validate_folder(self) -> None:
        if self.lock is not None and self.lock.is_gone():
            raise self.lock.gone()


def _is_interruption(error: BaseException) -> bool:
    """Whether an error is or was caused by an interruption: Lightning turns Ctrl-C into its own exit, and
    the writer of torch fails on the incomplete file."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        return True
    return error.__context__ is not None and _is_interruption(error.__context__)
