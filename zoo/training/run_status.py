"""How far a run has come, and what is reported of the error that ends it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from zoo.errors import InputError, RunError
from zoo.files import full_disk_message, is_disk_full
from zoo.launch.children import Children, Supervisor
from zoo.launch.ranks import find_launcher, quiet_exit
from zoo.runs.folder import RECIPE, Claim, give_up
from zoo.runs.lock import RunLock
from zoo.training.checkpoints import LastCheckpoint
from zoo.training.interruption import REQUEUE, Interruption, Stopped, requeue
from zoo.training.resume import how_to_continue, resume_command

PATIENCE = 5.0
"""Seconds that a process has to notice by itself that another one is gone, and to report it."""
LOST_CONNECTION = (dist.DistBackendError, dist.DistNetworkError)


class RunStatus(Callback):
    """Turns the error that ends a run into one report, of one of its processes.

    Args:
        children: the further processes of this run, if they were started ahead.

    Attributes:
        claim: that of a new run's folder.
        lock: of the folder, in the process that writes.
        last: a callback of the trainer; None until it starts.
    """

    def __init__(self, children: Children | None = None) -> None:
        self.interruption = Interruption()
        self.children, self.reporter = children or Children(), _Reporter()
        self.claim: Claim | None = None
        self.lock: RunLock | None = None
        self.trainer: pl.Trainer | None = None
        self.last: LastCheckpoint | None = None
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
        self._validate_folder()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._validate_folder()

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
        saved, full = self.last.saved_at if self.last else 0, is_disk_full(error)
        if self.folder_is_gone() and not _is_interruption(error):
            return self.lock.gone(self._when())
        # Remove what came to nothing, and what only takes room on a full disk.
        if self.claim is not None and (self.steps == 0 or (full and not saved)):
            give_up(self.claim)
            self.lock = None
        # With a second Ctrl-C a process leaves the others, which got it too. But a launcher that has lost a
        # process sends SIGTERM to the rest: that is no interruption.
        if _is_interruption(error) or (lost is not None and self.interruption.by_hand):
            return KeyboardInterrupt(self.interrupted())
        if full:
            advice = "No checkpoint was saved; make room and start it again"
            if saved:
                command = resume_command(folder)
                advice = f"The last good checkpoint is of step {saved}; make room, then continue: {command}"
            return RunError(f"{full_disk_message(error, folder)}. {advice}")
        if self.supervisor is None or not isinstance(error, Exception):
            return error
        if not self.reporter.is_first():
            return quiet_exit(2 if isinstance(error, InputError) else 1)
        if lost is not None:
            return RunError(lost)
        cause = self._cause(error)
        if cause is not None:
            return RunError(f"process {self.reporter.rank}: {cause}" if self.reporter.rank else cause)
        if not isinstance(error, InputError | RunError):
            error.add_note(f"This was {self._when()}. {self._saved()}")
        return error

    def interrupted(self) -> str:
        """Where a run stands that was interrupted, and how to continue it."""
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
        """The text of an interruption; where SLURM has warned, what came of the request to begin again."""
        if self.interruption.request < REQUEUE:
            return text
        # Printed before: SLURM may end this process as soon as it has the request.
        print(text, file=sys.stderr, flush=True)
        return requeue()

    def folder_is_gone(self) -> bool:
        """Whether the run's folder was removed, and all that was saved with it."""
        return self.lock is not None and self.lock.is_gone()

    @property
    def steps(self) -> int:
        return 0 if self.trainer is None else self.trainer.global_step

    def _cause(self, error: Exception) -> str | None:
        if isinstance(error, RuntimeError) and str(error).startswith("DataLoader worker"):
            return (
                f"a data worker has died {self._when()} ({str(error).rstrip(' .')}), probably for lack of "
                f"memory: lower data.workers, or set it to 0. {self._saved()}"
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
        how = "another process of this run is gone"
        if self.children.failed():
            how = self.children.how_one_failed() or "interrupted"
        return f"{how}; {self.last.how_to_continue()}"

    def _report_loss(self, how: str | None) -> str | None:
        """What the supervisor reports, unless another process has."""
        text = f"\n{how or 'interrupted'}; {self.last.how_to_continue()}"
        return text if self.reporter.is_first() else None

    def _validate_folder(self) -> None:
        if self.folder_is_gone():
            raise self.lock.gone(self._when())

    def _when(self) -> str:
        return f"after step {self.steps}" if self.steps else "in the first step"


def _is_interruption(error: BaseException) -> bool:
    """Whether an error is an interruption or came of one: Lightning turns Ctrl-C into an exit of its own, and
    torch's writer fails on the incomplete file."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        return True
    return error.__context__ is not None and _is_interruption(error.__context__)


class _Reporter:
    """Which of several processes that fail at the same time reports the error: the first that asks.

    It asks a store outside the process group, which cannot be used once a process has left it.
    """

    def __init__(self) -> None:
        self.rank = 0
        self._store: dist.TCPStore | None = None

    def connect(self, trainer: pl.Trainer) -> None:
        """Every process calls it, once they have met."""
        if trainer.world_size == 1:
            return
        self.rank = trainer.global_rank
        host = os.environ.get("MASTER_ADDR", "127.0.0.1")
        how = {"timeout": timedelta(minutes=1), "wait_for_workers": False}
        store = dist.TCPStore(host, 0, is_master=True, **how) if self.rank == 0 else None
        port = trainer.strategy.broadcast(store.port if store else 0)
        self._store = store or dist.TCPStore(host, port, is_master=False, **how)

    def is_first(self) -> bool:
        if self._store is None:
            return True
        try:
            with _native_stderr_hidden() if self.rank else nullcontext():
                return self._store.add("reported", 1) == 1
        except (RuntimeError, ValueError):
            return False  # the store is gone, and with it the first process, which has reported


@contextmanager
def _native_stderr_hidden() -> Iterator[None]:
    """Torch's C++ prints a page about a store that is gone, before it raises."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
