"""What a run is said to have ended with, and what it leaves."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from zoo.errors import RunError
from zoo.files import full_disk_message, is_disk_full
from zoo.launch.children import Children, Supervisor
from zoo.launch.reporting import quiet_exit
from zoo.launch.slurm import requeue
from zoo.runs.folder import RECIPE, Claim, give_up
from zoo.runs.folder_identity import FolderIdentity
from zoo.training.checkpoints.callbacks import LastCheckpoint
from zoo.training.checkpoints.resume import resume_command
from zoo.training.stops.failure import Failure, failure_of
from zoo.training.stops.interruption import REQUEUE, Interruption, Stopped

PATIENCE = 5.0
"""Seconds that a process has to notice by itself that another one is gone, and to report it."""
LOSSES = (dist.DistBackendError, dist.DistNetworkError)


class Ending(Callback):
    """Knows how far a run has come, and so what an error means that ends it.

    Once there is one, signals cannot change what is told any more, and this process watches no others: they
    end too. `claim` is that of a new run's folder, `identity` that of the folder in the process that writes.
    """

    def __init__(self, interruption: Interruption):
        self.interruption = interruption
        self.claim: Claim | None = None
        self.identity: FolderIdentity | None = None
        self.trainer: pl.Trainer | None = None
        self.last: LastCheckpoint | None = None
        self.failure: Failure | None = None
        self.children = Children()
        self.supervisor: Supervisor | None = None

    def follow(self, trainer: pl.Trainer, last: LastCheckpoint) -> None:
        """Be told of what ends this trainer's run, and end it where another process is gone."""
        self.trainer, self.last, self.failure = trainer, last, failure_of(trainer)
        trainer.callbacks.insert(0, self)
        self.supervisor = Supervisor(self.children, self._loss, PATIENCE)
        self.supervisor.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        # The first of the callbacks: before anything of this step is written.
        self._folder_must_be_there()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._folder_must_be_there()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        self.decide()

    def teardown(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        self.supervisor.stop()

    def decide(self) -> None:
        """From here on this process takes no more signals, and watches no others."""
        self.interruption.deafen()
        if self.supervisor is not None:
            self.supervisor.stop()

    def of(self, error: BaseException, folder: Path) -> BaseException:
        """What the run in `folder` ends with: the error itself where nothing better can be said."""
        self.decide()
        lost = self._lost(error) if self.supervisor is not None else None
        saved = self.last.saved_at if self.last else 0
        full = _disk_full(error, folder, saved) if is_disk_full(error) else None
        if self.is_homeless() and not _is_interruption(error):
            return self.identity.lost(self._when())
        # What came to nothing goes, and what only takes room on a full disk.
        if self.claim is not None and (self.steps == 0 or (full and not saved)):
            give_up(self.claim)
            self.identity = None  # it is gone, and by us
        # Whoever stops at once, by Ctrl-C, leaves the others, which were told to stop too. But a launcher
        # that has lost a process sends SIGTERM to the rest.
        if _is_interruption(error) or (lost is not None and self.interruption.by_hand):
            return KeyboardInterrupt(self.interrupted())
        if full:
            return RunError(full)
        if self.failure is None:
            return error
        if lost is not None:
            return RunError(lost) if self.failure.is_told_here() else quiet_exit(1)
        return self.failure.of(error, self.steps)

    def interrupted(self) -> str:
        """Where a run stands that was interrupted, and how to go on with it."""
        last = self.last
        if last is None:
            return "interrupted before training began; nothing was written"
        # Before Lightning has taken up a resumed run it counts from 0.
        step = max(self.steps, last.saved_at)
        text = f"interrupted at step {step}"
        if self.is_homeless():
            return f"{text}; {self.identity.lost('before')}"
        if not (last.saved_at or (last.folder / RECIPE).is_file()):
            return f"{text}; nothing was saved"
        return f"{text}; {'saved; ' if last.saved_at == step else ''}{last.how_to_continue(step)}"

    def _lost(self, error: BaseException) -> str | None:
        """The report where an error came of another process being gone; None for any other error."""
        if not isinstance(error, LOSSES) and not (isinstance(error, RuntimeError) and "gloo" in str(error)):
            return None
        self.children.wait_for_failure(PATIENCE)
        if not self.children.failed():
            return f"another process of this run is gone; {self.last.how_to_continue()}"
        return f"{self.children.how_one_failed() or 'interrupted'}; {self.last.how_to_continue()}"

    def _loss(self, how: str | None) -> str | None:
        """What the supervisor reports, unless another process has."""
        text = f"\n{how or 'interrupted'}; {self.last.how_to_continue()}"
        return text if self.failure.is_told_here() else None

    def is_homeless(self) -> bool:
        """Whether the run's folder is gone, and all that it had saved with it."""
        return self.identity is not None and self.identity.is_gone()

    def _folder_must_be_there(self) -> None:
        if self.is_homeless():
            raise self.identity.lost(self._when())

    def _when(self) -> str:
        return f"after step {self.steps}" if self.steps else "in the first step"

    def requeued(self, text: str) -> str:
        """The text of an interruption; where SLURM has warned, of what came of the wish to begin again."""
        if self.interruption.wish < REQUEUE:
            return text
        # Told before: SLURM may end this process as soon as it has heard.
        print(text, file=sys.stderr, flush=True)
        return requeue()

    @property
    def steps(self) -> int:
        return 0 if self.trainer is None else self.trainer.global_step


def _is_interruption(error: BaseException) -> bool:
    """Whether an error is one, or came of one: Lightning turns Ctrl-C into an exit of its own, and torch's
    writer stumbles over what is missing in the file."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        return True
    return error.__context__ is not None and _is_interruption(error.__context__)


def _disk_full(error: BaseException, folder: Path, saved: int) -> str:
    said = full_disk_message(error, folder)
    if not saved:
        return f"{said}. No checkpoint was saved; make room and start it again"
    command = resume_command(folder)
    return f"{said}. The last good checkpoint is of step {saved}; make room, then continue: {command}"
