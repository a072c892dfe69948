"""How far a run has come, and what is reported of the error that ends it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from zoo.errors import InputError, RunError
from zoo.files import full_disk_message, is_disk_full
from zoo.launch.children import Children, Supervisor
from zoo.launch.first_reporter import FirstReporter
from zoo.launch.ranks import find_launcher
from zoo.launch.reporting import quiet_exit
from zoo.launch.slurm import requeue
from zoo.memory import is_out_of_memory
from zoo.runs.folder import RECIPE, Claim, give_up
from zoo.runs.folder_identity import FolderIdentity
from zoo.training.checkpoints.callbacks import LastCheckpoint
from zoo.training.checkpoints.resume import how_to_continue, resume_command
from zoo.training.interruption import REQUEUE, Interruption, Stopped
from zoo.training.memory_guard import MemoryGuard

PATIENCE = 5.0
"""Seconds that a process has to notice by itself that another one is gone, and to report it."""
LOST_CONNECTION = (dist.DistBackendError, dist.DistNetworkError)


class RunStatus(Callback):
    """Turns the error that ends a run into one report, of one of its processes.

    Attributes:
        claim: that of a new run's folder.
        identity: of the folder, in the process that writes.
        last, memory: callbacks of the trainer; None until it starts.
    """

    def __init__(self) -> None:
        self.interruption = Interruption()
        self.children, self.reporter = Children(), FirstReporter()
        self.claim: Claim | None = None
        self.identity: FolderIdentity | None = None
        self.trainer: pl.Trainer | None = None
        self.last: LastCheckpoint | None = None
        self.memory: MemoryGuard | None = None
        self.supervisor: Supervisor | None = None

    def start_processes(self, trainer: pl.Trainer, last: LastCheckpoint) -> None:
        """Start those of further devices, unless a launcher has; end this one when one of them is lost."""
        self.last = last
        if find_launcher() is None and trainer.num_devices > 1:
            self.children.start(trainer.num_devices, trainer.world_size)
        self.supervisor = Supervisor(self.children, self._report_loss, PATIENCE)
        self.supervisor.start()

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        self.trainer = trainer
        self.reporter.connect(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        # The first of the callbacks: before anything of this step is written.
        self._check_folder()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._check_folder()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        self.close()

    def teardown(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        if self.supervisor is not None:
            self.supervisor.stop()

    def close(self) -> None:
        """The run is over: no signal changes its report any more, and other processes end too."""
        self.interruption.ignore_signals()
        if self.supervisor is not None:
            self.supervisor.stop()

    def explain(self, error: BaseException, folder: Path) -> BaseException:
        """The exception with which the run in `folder` ends instead of `error`; an unknown `error` itself.

        A RunError where the cause is known, SystemExit in a process that leaves the report to another.
        """
        self.close()
        lost = self._lost_process(error)
        saved = self.last.saved_at if self.last else 0
        full = _disk_full(error, folder, saved) if is_disk_full(error) else None
        if self.folder_is_gone() and not _is_interruption(error):
            return self.identity.lost(self._when())
        # Remove what came to nothing, and what only takes room on a full disk.
        if self.claim is not None and (self.steps == 0 or (full and not saved)):
            give_up(self.claim)
            self.identity = None
        # With a second Ctrl-C a process leaves the others, which got it too. But a launcher that has lost a
        # process sends SIGTERM to the rest: that is no interruption.
        if _is_interruption(error) or (lost is not None and self.interruption.by_hand):
            return KeyboardInterrupt(self.interrupted())
        if full:
            return RunError(full)
        if self.supervisor is None or not isinstance(error, Exception):
            return error
        if not self.reporter.is_first():
            return quiet_exit(2 if isinstance(error, InputError) else 1)
        return RunError(lost) if lost is not None else self._explain_own(error)

    def interrupted(self) -> str:
        """Where a run stands that was interrupted, and how to continue it."""
        last = self.last
        if last is None:
            return "interrupted before training began; nothing was written"
        # Until Lightning has restored a resumed run, it counts from 0.
        step = max(self.steps, last.saved_at)
        text = f"interrupted at step {step}"
        if self.folder_is_gone():
            return f"{text}; {self.identity.lost('before')}"
        if not (last.saved_at or (last.folder / RECIPE).is_file()):
            return f"{text}; nothing was saved"
        return f"{text}; {'saved; ' if last.saved_at == step else ''}{last.how_to_continue(step)}"

    def requeued(self, text: str) -> str:
        """The text of an interruption; where SLURM has warned, what came of the request to begin again."""
        if self.interruption.request < REQUEUE:
            return text
        # Printed before: SLURM may end this process as soon as it has the request.
        print(text, file=sys.stderr, flush=True)
        return requeue()

    def folder_is_gone(self) -> bool:
        """Whether the run's folder was removed, and all that was saved with it."""
        return self.identity is not None and self.identity.is_gone()

    @property
    def steps(self) -> int:
        return 0 if self.trainer is None else self.trainer.global_step

    def _explain_own(self, error: Exception) -> Exception:
        text = self._cause(error)
        if text is not None:
            return RunError(f"process {self.reporter.rank}: {text}" if self.reporter.rank else text)
        if not isinstance(error, InputError | RunError):
            error.add_note(f"This was {self._when()}. {self._saved()}")
        return error

    def _cause(self, error: Exception) -> str | None:
        when, text = self._when(), str(error)
        if is_out_of_memory(error):
            more = self.memory.accumulate
            with_it = f" --set trainer.accumulate_grad_batches={more}" if more and self.last.saved_at else ""
            return f"{self.memory.describe(when)}. {self._saved()}{with_it}"
        if isinstance(error, RuntimeError) and text.startswith("DataLoader worker"):
            return (
                f"a data worker has died {when} ({text.rstrip(' .')}), probably for lack of memory: lower "
                f"data.workers, or set it to 0. {self._saved()}"
            )
        if isinstance(error, RuntimeError) and "returned nan values in its" in text:
            return (
                f"trainer.detect_anomaly: the gradient is not finite {when}: {text.rstrip('.')}; the forward "
                f"call that it belongs to is printed above. {self._saved()}"
            )
        return None

    def _saved(self) -> str:
        saved = self.last.saved_at
        if not saved:
            return "No checkpoint was written"
        return f"The last checkpoint is of step {saved}; {how_to_continue(self.last.folder, saved)}"

    def _lost_process(self, error: BaseException) -> str | None:
        """The report of an error that came of another process being gone; None for any other error."""
        is_gloo = isinstance(error, RuntimeError) and "gloo" in str(error)
        if self.supervisor is None or not (is_gloo or isinstance(error, LOST_CONNECTION)):
            return None
        self.children.wait_for_failure(PATIENCE)
        if not self.children.failed():
            return f"another process of this run is gone; {self.last.how_to_continue()}"
        return f"{self.children.how_one_failed() or 'interrupted'}; {self.last.how_to_continue()}"

    def _report_loss(self, how: str | None) -> str | None:
        """What the supervisor reports, unless another process has."""
        text = f"\n{how or 'interrupted'}; {self.last.how_to_continue()}"
        return text if self.reporter.is_first() else None

    def _check_folder(self) -> None:
        if self.folder_is_gone():
            raise self.identity.lost(self._when())

    def _when(self) -> str:
        return f"after step {self.steps}" if self.steps else "in the first step"


def _is_interruption(error: BaseException) -> bool:
    """Whether an error is an interruption or came of one: Lightning turns Ctrl-C into an exit of its own, and
    torch's writer fails on the incomplete file."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        return True
    return error.__context__ is not None and _is_interruption(error.__context__)


def _disk_full(error: BaseException, folder: Path, saved: int) -> str:
    message = full_disk_message(error, folder)
    if not saved:
        return f"{message}. No checkpoint was saved; make room and start it again"
    command = resume_command(folder)
    return f"{message}. The last good checkpoint is of step {saved}; make room, then continue: {command}"
