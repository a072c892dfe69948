"""Lightning's Trainer, with the recipe's flags and the zoo's callbacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from zoo.data.source import DataSource
from zoo.errors import InputError, Problem
from zoo.recipe import Recipe
from zoo.runs.card import make_card
from zoo.runs.checkpoint import read_checkpoint
from zoo.runs.folder import BEST
from zoo.tasks.task import Task
from zoo.training.callbacks import SeededSteps, StepBar, StepLog
from zoo.training.checkpoints import LastCheckpoint
from zoo.training.interruption import Interruption
from zoo.training.loggers import make_loggers


def make_trainer(
    recipe: Recipe,
    task: Task,
    source: DataSource,
    folder: Path,
    checkpoint: Path | None = None,
    origin: dict[str, Any] | None = None,
) -> tuple[pl.Trainer, LastCheckpoint]:
    """A Trainer that writes into `folder`, and the callback that keeps its last checkpoint.

    `checkpoint` is that of a resumed run; `origin` says for the card where a new one took its weights from.

    Raises:
        InputError: flags that Lightning refuses.
    """
    every = recipe.checkpoint.every_n_steps
    tokens_per_step = recipe.data.batch_size * recipe.data.sequence_length
    flags = recipe.trainer.flags()
    if flags["val_check_interval"] is None:
        # A run shorter than that is validated once, at its end.
        steps = min(every, recipe.trainer.max_steps)
        flags["val_check_interval"] = steps * flags["accumulate_grad_batches"]
    if isinstance(flags["val_check_interval"], int):
        # Counted from the beginning of the run, over the ends of epochs.
        flags["check_val_every_n_epoch"] = None
    before = {} if checkpoint is None else read_checkpoint(checkpoint)
    done = before.get("global_step", 0)
    # The origin may be gone, or hold another model, by the time that a run is resumed.
    origin = origin or before.get("zoo_card", {}).get("init_from")
    interruption = Interruption()
    card = make_card(recipe, task.model, source.fingerprint, origin)
    last = LastCheckpoint(folder, every, card, tokens_per_step, interruption)
    last.saved_at = done
    callbacks: list[Callback] = [
        interruption,
        SeededSteps(),
        StepLog(tokens_per_step),
        last,
        ModelCheckpoint(
            folder / BEST.parent,
            BEST.stem,
            monitor="val/loss",
            mode="min",
            enable_version_counter=False,
        ),
    ]
    if flags.get("enable_progress_bar") is not False:
        callbacks.append(StepBar(tokens_per_step))
    try:
        trainer = pl.Trainer(
            **{"enable_model_summary": False, "num_sanity_val_steps": 0, **flags},
            max_epochs=-1,
            default_root_dir=folder,
            use_distributed_sampler=False,
            logger=make_loggers(recipe, folder, done),
            callbacks=callbacks,
        )
    except (MisconfigurationException, ImportError, ValueError, TypeError) as error:
        raise InputError(Problem(str(error).strip(), key="trainer")) from error
    return trainer, last
