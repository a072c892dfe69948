"""The progress of a run, and the report of the error that ends it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from zoo.errors import InputError, RunError
from zoo.files import is_disk_full
from zoo.runs.folder import RECIPE, Claim, give_up
from zoo.runs.lock import RunLock
from zoo.training.checkpoints import LastCheckpoint
from zoo.training.interruption import REQUEUE, Interruption, Stopped, requeue
from zoo.training.resume import how_to_continue


class RunStatus(Callback):
    """Turns the error that ends a run into a report with the last checkpoint and the command that resumes.

    Attributes:
        claim: the claim of the folder of a new run.
        lock: the lock of the folder, in the process that writes.
        last: a callback of the trainer; None until there is one.
    """

    def __init__(self) -> None:
        self.interruption = Interruption()
        self.claim: Claim | None = None
        self.lock: RunLock | None = None
        self.trainer: pl.Trainer | None = None
        self.last: LastCheckpoint | None = None

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        self.trainer = trainer

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        # The first of the callbacks: before anything of this step is written.
        self._validate_folder()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._validate_folder()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        self.interruption.ignore_signals()

    def explain(self, error: BaseException, folder: Path) -> BaseException:
        """The exception that ends the run in `folder` instead of `error`, or `error` with a note."""
        self.interruption.ignore_signals()
        saved, full = self.last.saved_at if self.last else 0, is_disk_full(error)
        if self.folder_is_gone() and not _is_interruption(error):
            return self.lock.gone(self._when())
        # Remove an empty run, and files that only take room on a full disk.
        if self.claim is not None and (self.steps == 0 or (full and not saved)):
            give_up(self.claim)
            self.lock = None
        if _is_interruption(error):
            return KeyboardInterrupt(self.interrupted())
        if self.last is None or isinstance(error, InputError | RunError) or not isinstance(error, Exception):
            return error
        if not full and (isinstance(error, dist.DistError) or "gloo" in str(error)):
            return RunError(f"another process of this run has ended; {self.last.how_to_continue()}")
        if str(error).startswith("DataLoader worker"):
            return RunError(f"{str(error).rstrip(' .')}: out of memory? Lower data.workers. {self._saved()}")
        error.add_note(f"This was {self._when()}. {self._saved()}")
        return error

    def interrupted(self) -> str:
        """The step of an interrupted run, and the command that continues it."""
        last = self.last
        if last is None:
            return "interrupted before training began; nothing was written"
        # Until Lightning has restored a resumed run, it counts from 0.
        step = max(self.steps, last.saved_at)
        text = f"interrupted at step {step}"
        if self.folder_is_gone():
            return f"{text}; {self.lock.gone('before')}"
        if not (last.saved_at or (last.folder / RECIPE).is_file()):
            return f"{text}; nothing was saved"
        return f"{text}; {'saved; ' if last.saved_at == step else ''}{last.how_to_continue(step)}"

    def requeued(self, text: str) -> str:
        """The text of an interruption; after the warning of SLURM, the outcome of the request to requeue."""
        if self.interruption.request < REQUEUE:
            return text
        # Printed before: SLURM may end this process as soon as it has the request.
        print(text, file=sys.stderr, flush=True)
        return requeue()

    def folder_is_gone(self) -> bool:
        """Whether the folder of the run was removed."""
        return self.lock is not None and self.lock.is_gone()

    @property
    def steps(self) -> int:
        return 0 if self.trainer is None else self.trainer.global_step

    def _saved(self) -> str:
        saved = self.last.saved_at
        if not saved:
            return "No checkpoint was written"
        return f"The last checkpoint is of step {saved}; {how_to_continue(self.last.folder, saved)}"

    def _validate_folder(self) -> None:
        if self.folder_is_gone():
            raise self.lock.gone(self._when())

    def _when(self) -> str:
        return f"after step {self.steps}" if self.steps else "in the first step"


def _is_interruption(error: BaseException) -> bool:
    """Whether an error is or was caused by an interruption: Lightning turns Ctrl-C into its own exit, and
    the writer of torch fails on the incomplete file."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        return True
    return error.__context__ is not None and _is_interruption(error.__context__)
