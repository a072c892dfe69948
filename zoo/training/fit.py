"""A recipe becomes a trained model in a run folder."""

from __future__ import annotations

import os
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from zoo.data import open_data
from zoo.errors import InputError
from zoo.evaluation.evaluate import evaluate_task, summary_line
from zoo.recipe import Recipe
from zoo.tasks import task_class
from zoo.training.callbacks import CardWriter, SeededSteps, StepBar, StepLog
from zoo.training.card import encoding_label, make_card, read_card
from zoo.training.checkpoint import LAST, read_checkpoint
from zoo.training.data_module import DataModule
from zoo.training.loggers import make_loggers
from zoo.training.quiet import quieten
from zoo.training.run_folder import new_run, old_run, write_recipe


def fit(recipe: Recipe, out: Path | None = None, resume: bool = False, recipe_file=None) -> Path:
    """Train, evaluate at the recipe's lengths, and say where everything is.

    Args:
        recipe: a resolved recipe.
        out: the run folder; by default runs/NAME, or the next free number after it.
        resume: continue the run in `out`, or the newest of this name, from its last checkpoint.

    Returns: the run folder.

    Raises:
        InputError: data that cannot be had, a folder that is taken, a recipe that cannot be built.
    """
    quieten()
    main = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", os.environ.get("SLURM_PROCID", "0")))) == 0
    source = open_data(recipe)
    task = task_class(recipe.task.name)(recipe.as_dict(), source.vocab_size)
    folder = old_run(recipe, out) if resume else new_run(recipe, out)
    checkpoint = _resume_point(folder) if resume else None
    if main:
        write_recipe(folder, recipe)
        source.save_tokenizer(folder)
        print(_opening_line(recipe, task, folder, checkpoint), flush=True)
    trainer, card = _trainer(recipe, task, source, folder, checkpoint)
    if recipe.compile:
        # The inner module, in place: its parameter names stay clean, and Lightning's logging stays outside.
        task.model.compile()
    try:
        trainer.fit(task, DataModule(source), ckpt_path=checkpoint, weights_only=True)
    except torch.OutOfMemoryError as error:
        raise RuntimeError(_out_of_memory(recipe, folder)) from error
    if trainer.is_global_zero:
        card.update(read_card(folder))
        rows = evaluate_task(task, source, folder, folder / "checkpoints" / LAST)
        print(f"\ndone: {recipe.name} is in {folder}")
        print(summary_line(rows))
        longer = ",".join(str(recipe.data.sequence_length * 2**i) for i in range(5))
        print(f"look further: python -m zoo evaluate {folder} --lengths {longer}", flush=True)
    return folder


def _trainer(recipe: Recipe, task: pl.LightningModule, source, folder: Path, checkpoint: Path | None):
    data, every = recipe.data, recipe.checkpoint.every_n_steps
    tokens_per_step = data.batch_size * data.sequence_length
    card = make_card(recipe, task.model, source.fingerprint)
    done = 0 if checkpoint is None else read_checkpoint(checkpoint)["global_step"]
    flags = recipe.trainer.flags()
    if flags.get("val_check_interval") is None:
        flags["val_check_interval"] = every * flags["accumulate_grad_batches"]
    if isinstance(flags["val_check_interval"], int):
        # Counted from the beginning of the run, over the ends of epochs.
        flags["check_val_every_n_epoch"] = None
    last = {"dirpath": folder / "checkpoints", "filename": "last", "enable_version_counter": False}
    trainer = pl.Trainer(
        **{"enable_model_summary": False, "num_sanity_val_steps": 0, "max_epochs": -1, **flags},
        default_root_dir=folder,
        use_distributed_sampler=False,
        logger=make_loggers(recipe, folder, done),
        callbacks=[
            SeededSteps(),
            StepLog(tokens_per_step),
            StepBar(tokens_per_step),
            CardWriter(folder, card, tokens_per_step),
            ModelCheckpoint(**last, every_n_train_steps=every),
            # The end of the run, where it is no multiple of the interval.
            ModelCheckpoint(**last, every_n_train_steps=recipe.trainer.max_steps),
            ModelCheckpoint(**{**last, "filename": "best"}, monitor="val/loss", mode="min"),
        ],
    )
    return trainer, card


def _resume_point(folder: Path) -> Path:
    checkpoint = folder / "checkpoints" / LAST
    if not checkpoint.is_file():
        raise InputError(
            f"{folder}: the run stopped before its first checkpoint; there is nothing to continue. "
            f"Start it anew (without --resume)"
        )
    return checkpoint


def _opening_line(recipe: Recipe, task: pl.LightningModule, folder: Path, checkpoint: Path | None) -> str:
    parameters = sum(p.numel() for p in task.model.parameters())
    verb = "continuing" if checkpoint else "training"
    article = "an" if recipe.model.kind == "encoder" else "a"
    return (
        f"{verb} {recipe.name}: {encoding_label(recipe.model.encoding)} in {article} {recipe.model.kind} of "
        f"{parameters / 1e6:.2f} M parameters on {recipe.data.name}, length {recipe.data.sequence_length}, "
        f"{recipe.trainer.max_steps} steps; run folder {folder}"
    )


def _out_of_memory(recipe: Recipe, folder: Path) -> str:
    return (
        f"out of memory: batches of {recipe.data.batch_size} x {recipe.data.sequence_length} tokens at d_model "
        f"{recipe.model.d_model}, {recipe.model.num_layers} layers. Raise trainer.accumulate_grad_batches (the "
        f"result stays the same), or lower data.batch_size or data.sequence_length. What was saved is in {folder}"
    )
