"""Lightning's Trainer, with the recipe's flags and the zoo's callbacks."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import lightning.pytorch as pl
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from zoo.data.loader import Loader, ResumableLoader
from zoo.data.source import DataSource
from zoo.errors import InputError, Problem
from zoo.launch.devices import devices_taken
from zoo.launch.ranks import find_launcher
from zoo.runs.card import make_card
from zoo.tasks.task import Task
from zoo.training.callbacks import ContextParallel, SeededSteps, StepBar, StepLog, StepTimer
from zoo.training.checkpoints import AtomicCheckpointIO, BestCheckpoint, LastCheckpoint
from zoo.training.length_curve import LengthCurve
from zoo.training.loggers import make_loggers
from zoo.training.nan_guard import NanGuard
from zoo.training.run import TrainingRun
from zoo.training.run_status import RunStatus
from zoo.training.sharded import ShardedStrategy


class DataModule(pl.LightningDataModule):
    """The data of a run as Lightning takes it: each device asks for its own share."""

    def __init__(self, source: DataSource):
        super().__init__()
        self.source, self.sharing = source, source.recipe.trainer.context_parallel

    def train_dataloader(self) -> ResumableLoader:
        return self.source.train_loader(*self._share())

    def val_dataloader(self) -> Loader:
        return self.source.valid_loader(*self._share())

    def _share(self) -> tuple[int, int]:
        """Processes that compute a sequence together read the same ones."""
        return self.trainer.global_rank // self.sharing, self.trainer.world_size // self.sharing


def make_trainer(run: TrainingRun, task: Task, source: DataSource, status: RunStatus) -> pl.Trainer:
    """A Trainer that writes into the folder of the run, and makes the card of the run.

    Args:
        status: handles the signals.

    Raises:
        InputError: flags that Lightning refuses.
    """
    recipe, before = run.recipe, run.content or {}
    flags = recipe.trainer.flags()
    flags["val_check_interval"] = recipe.validation_interval
    if flags["limit_val_batches"]:
        # Taken off the data: of batches Lightning would count each device's own.
        flags["limit_val_batches"] = None
    if isinstance(flags["val_check_interval"], int):
        # Lightning counts batches; from the beginning of the run, over the ends of epochs.
        flags["val_check_interval"] *= flags["accumulate_grad_batches"]
        flags["check_val_every_n_epoch"] = None
    log = StepLog()
    callbacks: list[Callback] = [
        status,
        SeededSteps(),
        *([ContextParallel(sharing)] if (sharing := recipe.trainer.context_parallel) > 1 else []),
        log,
        *([] if flags.get("enable_progress_bar") is False else [StepBar()]),
        NanGuard(log, run),
        *([LengthCurve(source, log)] if recipe.evaluate.during else []),
        # The last one after the best one, whose score it holds.
        BestCheckpoint(run),
        LastCheckpoint(run, lambda: status.due),
    ]
    if find_launcher() is None:
        rank_zero_only.rank = 0  # Lightning reads a rank left over in the environment when it is imported
    folder = run.folder or Path()  # a further process learns it when the training starts
    processes = devices_taken(recipe.trainer.devices, recipe.trainer.accelerator) * recipe.trainer.num_nodes
    if flags["strategy"] == "fsdp":
        flags["strategy"] = ShardedStrategy(processes) if processes > 1 else "auto"
    try:
        if flags.get("max_time") is not None:
            callbacks.append(StepTimer(flags.pop("max_time")))
        trainer = pl.Trainer(
            **{"enable_model_summary": False, "num_sanity_val_steps": 0, **flags},
            max_epochs=-1,
            # Never made: Lightning would continue from an hpc_ckpt_1.ckpt in it.
            default_root_dir=folder / "lightning",
            plugins=AtomicCheckpointIO(run),
            use_distributed_sampler=False,
            logger=make_loggers(recipe, folder, run.saved_at),
            callbacks=callbacks,
        )
    except InputError:
        raise  # also a ValueError, but with a location of its own
    except (MisconfigurationException, ImportError, ValueError, TypeError) as error:
        raise InputError(Problem(str(error).strip(), key="trainer")) from error
    # The origin may be gone, or hold another model, by the time that a run is resumed.
    origin = run.origin.facts if run.origin else before.get("zoo_card", {}).get("init_from")
    device = trainer.strategy.root_device.type
    run.card = make_card(recipe, task.model, source.fingerprint, origin, device, trainer.world_size, before)
    _disable_signal_handling(trainer)
    run.begun = True
    return trainer


def _disable_signal_handling(trainer: pl.Trainer) -> None:
    """Lightning's handlers send to other processes from within a signal, write checkpoints of their own under
    SLURM, and make its loop wait in every step for a broadcast of the first process."""
    trainer._signal_connector.register_signal_handlers = lambda: None
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None


def hide_library_messages() -> None:
    """Show warnings and errors of Lightning and torch, but no adverts and no hints on settings."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning_utilities", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", category=PossibleUserWarning)
    warnings.filterwarnings("ignore", message=r".*LeafSpec.* is deprecated")
