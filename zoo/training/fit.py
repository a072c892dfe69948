"""A recipe becomes a trained model in a run folder."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from zoo.data import open_data
from zoo.data.source import DataSource
from zoo.errors import RunError
from zoo.evaluation.foreseen import left_out
from zoo.evaluation.results import must_take_results
from zoo.files import full_disk_message, is_disk_full
from zoo.memory import freed_memory_kept
from zoo.recipe import Recipe, must_train
from zoo.runs.folder import (
    RECIPE,
    Claim,
    give_up,
    hold,
    is_first_process,
    let_go,
    must_be_free,
    new_run,
    remove_leftovers,
    write_recipe,
)
from zoo.runs.origin import must_have_same_tokens, read_origin, start_from
from zoo.tasks import must_build, task_class
from zoo.tasks.task import Task
from zoo.training.checkpoints.kept import LastCheckpoint
from zoo.training.checkpoints.matching import restoring
from zoo.training.checkpoints.resume import Resume, resume_command, resume_point, run_to_resume
from zoo.training.data_module import DataModule
from zoo.training.finish import finish, opening_line
from zoo.training.loggers import must_be_installed, quiet_writers
from zoo.training.quiet import quieten
from zoo.training.stops.failure import failure_of
from zoo.training.stops.interruption import REQUEUE, Interruption, Stopped
from zoo.training.stops.slurm import requeue
from zoo.training.stops.watch import Watch
from zoo.training.trainer import make_trainer
from zoo.training.world import must_be_shared_out


def fit(recipe: Recipe, out: Path | None = None, resume: Resume = False) -> Path:
    """Train, evaluate at the recipe's lengths, and say where everything is.

    Args:
        recipe: a resolved recipe.
        out: the run folder; by default runs/NAME, or the next free number after it.
        resume: continue the run in `out`, or the newest of this name, from its last checkpoint, or from the
            beginning where there is none yet; "auto": if there is such a run, else begin one.

    Returns: the run folder.

    Raises:
        InputError: data that cannot be had, a folder that is taken, a recipe that cannot be run here.
        RunError: training failed, or the disk is full; what was saved stays in the run folder.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SLURM's warning; its text says where the run stands and how to
            continue it.
    """
    quieten()
    interruption = Interruption()
    with interruption.handling():
        try:
            start = _prepare(recipe, out, resume)
            folder, first = _train(recipe, start, interruption)
            if first:
                _measure(recipe, start.source, folder)
            return folder
        except KeyboardInterrupt as error:
            text = str(error) or "interrupted before training began; nothing was written"
        if not is_first_process():
            raise SystemExit(130)
        interruption.deafen()
        if interruption.wish == REQUEUE:
            # Told before: SLURM may end this process as soon as it has heard.
            print(text, file=sys.stderr, flush=True)
            text = requeue()
        raise KeyboardInterrupt(text)


@dataclass
class _Start:
    """All that is known before a model is trained; `claim` is that of a new run's folder."""

    task: Task
    source: DataSource
    folder: Path
    checkpoint: Path | None
    claim: Claim | None
    origin: dict[str, Any] | None


def _prepare(recipe: Recipe, out: Path | None, resume: Resume) -> _Start:
    """Everything that may be refused, before anything is written; then the folder."""
    must_train(recipe)
    must_be_shared_out(recipe)
    must_be_installed(recipe)
    must_build(recipe)
    folder = run_to_resume(recipe, out, resume)
    checkpoint = claim = origin = None
    if folder is not None:
        checkpoint = resume_point(folder, recipe)
        must_take_results(folder)
    elif out is not None and is_first_process():
        must_be_free(out)
    if recipe.init_from is not None and checkpoint is None:
        # Before the data is prepared, which may take long: whether the weights fit does not depend on it.
        origin = read_origin(recipe.init_from)
        task = _task(recipe, origin.vocab_size)
        start_from(origin, task)
    source = open_data(recipe)
    if origin is None:
        task = _task(recipe, source.vocab_size)
    else:
        must_have_same_tokens(origin, source)
    source.train_loader()  # a batch that cannot be had is told before anything is written

    if folder is None:
        # Only the first process claims a folder; the others learn of it once they have met.
        claim = new_run(recipe, out) if is_first_process() else None
        folder = claim.folder if claim else Path()
    return _Start(task, source, folder, checkpoint, claim, origin and origin.facts)


def _train(recipe: Recipe, start: _Start, interruption: Interruption) -> tuple[Path, bool]:
    """Train to the end. Returns the run folder, and whether this is the first process."""
    source, folder, task = start.source, start.folder, start.task
    # The weights, the gradients and the optimizer's moments are four times the model that is evaluated next:
    # nobody else may keep them.
    del start.task
    held = hold(folder) if is_first_process() else None
    trainer = last = watch = None
    try:
        if held is not None:
            remove_leftovers(folder)
        trainer, last = make_trainer(
            recipe, task, source, folder, start.checkpoint, start.origin, interruption
        )
        source.train_loader(trainer.global_rank, trainer.world_size)
        if recipe.trainer.limit_val_batches != 0:
            source.valid_loader(trainer.global_rank, trainer.world_size)
        if trainer.is_global_zero:
            write_recipe(folder, recipe)
            source.save_tokenizer(folder)
            print(opening_line(recipe, task, folder, start.checkpoint), flush=True)
            print("".join(f"{line}\n" for line in left_out(task, source)), end="", flush=True)
        if recipe.compile:
            # The inner module, in place: its parameter names stay clean, and Lightning's log outside.
            task.model.compile()
        watch = Watch(trainer, last.how_to_continue)
        watch.start()
        with freed_memory_kept(), quiet_writers(), restoring(start.checkpoint):
            trainer.fit(task, DataModule(source), ckpt_path=start.checkpoint, weights_only=True)
    except BaseException as error:
        if watch is not None:
            watch.stop()
        end = _end_of(error, start, trainer, last, watch, interruption)
        if end is error:
            raise
        raise end from error
    finally:
        if trainer is not None:
            failure_of(trainer).room.lift()
        if watch is not None:
            watch.stop()
        let_go(held)
    if interruption.asked:
        raise KeyboardInterrupt(_interrupted_at(_steps(trainer), last))
    if not last.saved_at:
        raise RunError(
            "training stopped before its first step: is trainer.max_time too short, or limit_train_batches 0?"
        )
    return last.folder, trainer.is_global_zero


def _end_of(
    error: BaseException,
    start: _Start,
    trainer: pl.Trainer | None,
    last: LastCheckpoint | None,
    watch: Watch | None,
    interruption: Interruption,
) -> BaseException:
    """What a run ends with that ended by an error: the error itself where nothing better can be said."""
    lost = watch.lost(error) if watch is not None else None
    saved = last.saved_at if last else 0
    full = _disk_full(error, start.folder, saved) if is_disk_full(error) else None
    # What came to nothing goes, and what only takes room on a full disk.
    if start.claim is not None and (_steps(trainer) == 0 or (full and not saved)):
        give_up(start.claim)
    # Who stops at once leaves the others, which were told to stop too.
    if _is_interruption(error) or (lost is not None and interruption.asked):
        return KeyboardInterrupt(_interrupted_at(_steps(trainer), last))
    if full:
        return RunError(full)
    if trainer is None:
        return error
    failure = failure_of(trainer)
    if lost is not None:
        # The first process is the one that is looked at; the others end with it.
        return RunError(lost) if is_first_process() and failure.is_told_here() else SystemExit(1)
    return failure.of(error, trainer.global_step)


def _measure(recipe: Recipe, source: DataSource, folder: Path) -> None:
    gc.collect()  # the trainer, the model and the optimizer know each other
    try:
        finish(recipe, source, folder)
    except KeyboardInterrupt:
        again = resume_command(folder)
        raise KeyboardInterrupt(f"interrupted while it was evaluated; saved; continue: {again}") from None


def _is_interruption(error: BaseException) -> bool:
    """Whether an error is one, or came of one: Lightning turns Ctrl-C into an exit of its own, and torch's
    writer stumbles over what is missing in the file."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        return True
    return error.__context__ is not None and _is_interruption(error.__context__)


def _interrupted_at(step: int, last: LastCheckpoint | None) -> str:
    # Before Lightning has taken up a resumed run it counts from 0.
    step = max(step, last.saved_at if last else 0)
    text = f"interrupted at step {step}"
    if last is None or not (last.saved_at or (last.folder / RECIPE).is_file()):
        return f"{text}; nothing was saved"
    return f"{text}; {'saved; ' if last.saved_at == step else ''}{last.how_to_continue(step)}"


def _steps(trainer: pl.Trainer | None) -> int:
    return 0 if trainer is None else trainer.global_step


def _task(recipe: Recipe, vocab_size: int) -> Task:
    return task_class(recipe.task.name)(recipe.as_dict(), vocab_size)


def _disk_full(error: BaseException, folder: Path, saved: int) -> str:
    said = full_disk_message(error, folder)
    if not saved:
        return f"{said}. No checkpoint was saved; make room and start it again"
    command = resume_command(folder)
    return f"{said}. The last good checkpoint is of step {saved}; make room, then continue: {command}"
