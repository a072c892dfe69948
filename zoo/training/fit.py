"""A recipe becomes a trained model in a run folder."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from zoo import registry
from zoo.data import open_data
from zoo.data.source import DataSource
from zoo.errors import RunError
from zoo.evaluation.measure import unmeasurable_lengths, validation_seen_in_training
from zoo.evaluation.store import validate_results_folder
from zoo.launch.ranks import is_first_process
from zoo.memory import freed_memory_kept
from zoo.recipe import Recipe, validate_trainable
from zoo.recipe.encoding import encodings_in
from zoo.runs.folder import Claim, new_run, remove_leftovers, validate_free, write_recipe
from zoo.runs.init_from import init_weights, read_init_from, validate_same_tokenizer
from zoo.runs.lock import RunLock
from zoo.tasks import build_encoding, build_task
from zoo.tasks.task import Task
from zoo.training.auto import choose_auto
from zoo.training.finish import finish, opening_line
from zoo.training.interruption import CONTINUE
from zoo.training.library_messages import hide_library_messages
from zoo.training.loggers import hide_writer_tracebacks, trackers_released, validate_installed
from zoo.training.resume import (
    Resume,
    recipe_so_far,
    restoring,
    resume_command,
    resume_point,
    run_to_resume,
)
from zoo.training.run_status import RunStatus
from zoo.training.strategy import validate_precision, validate_world_size
from zoo.training.trainer import DataModule, make_trainer


def fit(
    recipe: Recipe,
    out: Path | None = None,
    resume: Resume = False,
    ignore_signals: bool = False,
) -> Path:
    """Train, evaluate at the recipe's lengths, and print where everything is.

    Args:
        recipe: a resolved recipe.
        out: the run folder; by default runs/NAME, or the next free number after it.
        resume: continue the run in `out`, or the newest of this name, from its last checkpoint, or from the
            beginning where there is none yet; "auto": if there is such a run, else begin one.
        ignore_signals: after an error leave SIGINT, SIGTERM and SIGUSR1 ignored, so that the caller can
            report it; the caller restores the handlers.

    Returns: the run folder.

    Raises:
        InputError: data that cannot be had, a folder that is taken, a recipe that cannot be run here.
        RunError: training failed, or the disk is full; what was saved stays in the run folder.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SLURM's warning; its text has the step of the run and how to
            continue it.
    """
    hide_library_messages()
    status = RunStatus()
    with status.interruption.handling(ignore_signals):
        try:
            start = _prepare(recipe, out, resume)
            recipe = start.recipe
            folder = _train(recipe, start, status)
            if is_first_process():
                _measure(recipe, start.source, status)
            return folder
        except KeyboardInterrupt as error:
            status.interruption.ignore_signals()
            text = str(error) or status.interrupted()
        except BaseException:
            status.interruption.ignore_signals()
            raise
        raise KeyboardInterrupt(status.requeued(text) if is_first_process() else text)


@dataclass
class _Start:
    """What training starts from.

    Attributes:
        recipe: with what `auto` stands for here.
        checkpoint, content: those of a resumed run.
        claim: that of a new run's folder.
        origin: for the card, where a new run takes its weights from.
    """

    recipe: Recipe
    task: Task
    source: DataSource
    folder: Path
    checkpoint: Path | None
    content: dict[str, Any] | None
    claim: Claim | None
    origin: dict[str, Any] | None


def _prepare(recipe: Recipe, out: Path | None, resume: Resume) -> _Start:
    """Check everything that may be refused, before anything is written; then claim the folder."""
    validate_trainable(recipe)
    validate_world_size(recipe)
    validate_precision(recipe)
    validate_installed(recipe)
    folder = run_to_resume(recipe, out, resume)
    recipe = choose_auto(recipe, recipe_so_far(folder))
    built = build_encoding(recipe)
    _validate_plugins(recipe)
    checkpoint = content = claim = origin = None
    if folder is not None:
        checkpoint, content = resume_point(folder, recipe)
        validate_results_folder(folder)
    elif out is not None and is_first_process():
        validate_free(out)
    if recipe.init_from is not None and checkpoint is None:
        # Before the data is prepared, which may take long: whether the weights fit does not depend on it.
        origin = read_init_from(recipe.init_from)
        task = build_task(built, origin.vocab_size)
        init_weights(origin, task)
    source = open_data(recipe)
    if origin is None:
        # Of a model that began as an imported one the vocabulary may be padded.
        known = None if content is None else content["hyper_parameters"]["vocab_size"]
        task = build_task(built, known or source.vocab_size)
    else:
        validate_same_tokenizer(origin, source)
    source.train_loader()  # raises for a batch that cannot be had, before anything is written

    if folder is None:
        # Only the first process claims a folder; the others learn of it once they have met.
        claim = new_run(recipe, out) if is_first_process() else None
        folder = claim.folder if claim else Path()
    return _Start(recipe, task, source, folder, checkpoint, content, claim, origin and origin.facts)


def _validate_plugins(recipe: Recipe) -> None:
    """Raises InputError if an encoding from a plugin breaks a law of the contract."""
    names = [name for _, name in encodings_in(recipe.as_dict()["model"]["encoding"], ())]
    if not all(registry.encodings.describe(name).builtin for name in names):
        from zoo.contract.check import check_plugin  # not needed by any other training

        check_plugin(recipe)


def _train(recipe: Recipe, start: _Start, status: RunStatus) -> Path:
    """Train to the end. Returns the run folder."""
    source, folder, task, content = start.source, start.folder, start.task, start.content
    # The weights, the gradients and the optimizer's moments are four times the model that is evaluated next:
    # nobody else may keep them.
    del start.task, start.content
    lock = RunLock(folder) if is_first_process() else None
    status.claim, status.lock = start.claim, lock
    try:
        if lock is not None:
            remove_leftovers(folder)
        trainer, last = make_trainer(
            recipe, task, source, folder, status, start.checkpoint, content, start.origin
        )
        status.last = last
        del content  # the Trainer has it, and frees it once it is restored
        source.train_loader(trainer.global_rank, trainer.world_size)
        if recipe.trainer.limit_val_batches != 0:
            source.valid_loader(trainer.global_rank, trainer.world_size)
        if trainer.is_global_zero:
            write_recipe(folder, recipe)
            source.save_tokenizer(folder)
            print(opening_line(recipe, task, folder, start.checkpoint), flush=True)
            foreseen = [*unmeasurable_lengths(task, source), *validation_seen_in_training(task, source)]
            print("".join(f"{line}\n" for line in foreseen), end="", flush=True)
        if recipe.compile:
            # The inner module, in place: its parameter names stay, and Lightning's logging is not compiled.
            task.model.compile()
        with (
            freed_memory_kept(),
            hide_writer_tracebacks(status.folder_is_gone),
            trackers_released(recipe, lambda: status.steps > 0),
            restoring(start.checkpoint),
        ):
            trainer.fit(task, DataModule(source), ckpt_path=start.checkpoint, weights_only=True)
    except BaseException as error:
        end = status.explain(error, folder)
        if end is error:
            raise
        raise end from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()  # the first process evaluates alone
        if lock is not None:
            lock.release()
    if status.interruption.request > CONTINUE:
        raise KeyboardInterrupt(status.interrupted())
    if not last.saved_at:
        raise RunError(
            "training stopped before its first step: is trainer.max_time too short, or limit_train_batches 0?"
        )
    return last.folder


def _measure(recipe: Recipe, source: DataSource, status: RunStatus) -> None:
    try:
        gc.collect()  # the trainer, the model and the optimizer refer to each other
        finish(recipe, source, status.lock)
    except KeyboardInterrupt:
        if status.folder_is_gone():
            raise KeyboardInterrupt(status.interrupted()) from None
        again = resume_command(status.lock.folder)
        raise KeyboardInterrupt(f"interrupted while it was evaluated; saved; continue: {again}") from None
