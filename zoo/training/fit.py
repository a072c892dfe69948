"""A recipe becomes a trained model in a run folder."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.data import open_data
from zoo.data.source import DataSource
from zoo.errors import RunError
from zoo.evaluation.preflight import unmeasurable_lengths, validation_seen_in_training
from zoo.evaluation.results import validate_results_folder
from zoo.launch.parent import exit_when_parent_dies
from zoo.launch.ranks import find_launcher, is_first_process
from zoo.launch.reporting import quiet_exit, report_once
from zoo.memory import freed_memory_kept
from zoo.recipe import Recipe, validate_trainable
from zoo.recipe.options import encodings_in
from zoo.runs.folder import Claim, new_run, remove_leftovers, validate_free, write_recipe
from zoo.runs.folder_identity import FolderIdentity
from zoo.runs.init_from import init_weights, read_init_from, validate_same_tokenizer
from zoo.runs.lock import lock_run, unlock
from zoo.tasks import build_encoding, build_task
from zoo.tasks.task import Task
from zoo.training.checkpoints.resume import Resume, resume_command, resume_point, run_to_resume
from zoo.training.checkpoints.resume_checks import VERSION, restoring
from zoo.training.data_module import DataModule
from zoo.training.finish import finish, opening_line
from zoo.training.loggers import must_be_installed, quiet_writers
from zoo.training.quiet import quieten
from zoo.training.stops.ending import Ending
from zoo.training.stops.interruption import Interruption
from zoo.training.trainer import make_trainer
from zoo.training.world import must_be_shared_out, must_compute_as_said


def fit(recipe: Recipe, out: Path | None = None, resume: Resume = False, stay_deaf: bool = False) -> Path:
    """Train, evaluate at the recipe's lengths, and say where everything is.

    Args:
        recipe: a resolved recipe.
        out: the run folder; by default runs/NAME, or the next free number after it.
        resume: continue the run in `out`, or the newest of this name, from its last checkpoint, or from the
            beginning where there is none yet; "auto": if there is such a run, else begin one.
        stay_deaf: after an error leave SIGINT, SIGTERM and SIGUSR1 ignored, so that nothing keeps the caller
            from telling it; the caller gives them back.

    Returns: the run folder.

    Raises:
        InputError: data that cannot be had, a folder that is taken, a recipe that cannot be run here.
        RunError: training failed, or the disk is full; what was saved stays in the run folder.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SLURM's warning; its text says where the run stands and how to
            continue it.
    """
    exit_when_parent_dies()
    quieten()
    interruption = Interruption()
    ending = Ending(interruption)
    with interruption.handling(stay_deaf), ending.children:
        try:
            with report_once():
                start = _prepare(recipe, out, resume)
            folder, first = _train(recipe, start, ending)
            if first:
                _measure(recipe, start.source, folder, ending)
            return folder
        except KeyboardInterrupt as error:
            ending.decide()
            text = str(error) or ending.interrupted()
        except BaseException:
            ending.decide()
            raise
        if not is_first_process():
            raise quiet_exit(130)
        raise KeyboardInterrupt(ending.requeued(text))


@dataclass
class _Start:
    """All that is known before a model is trained; `content` is the checkpoint's, `claim` that of a new
    run's folder."""

    task: Task
    source: DataSource
    folder: Path
    checkpoint: Path | None
    content: dict[str, Any] | None
    claim: Claim | None
    origin: dict[str, Any] | None


def _prepare(recipe: Recipe, out: Path | None, resume: Resume) -> _Start:
    """Everything that may be refused, before anything is written; then the folder."""
    validate_trainable(recipe)
    must_be_shared_out(recipe)
    must_compute_as_said(recipe)
    must_be_installed(recipe)
    built = build_encoding(recipe)
    _must_pass_trial(recipe)
    folder = run_to_resume(recipe, out, resume)
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
        task = build_task(built, source.vocab_size)
    else:
        validate_same_tokenizer(origin, source)
    source.train_loader()  # a batch that cannot be had is told before anything is written

    if folder is None:
        # Only the first process claims a folder; the others learn of it once they have met.
        claim = new_run(recipe, out) if is_first_process() else None
        folder = claim.folder if claim else Path()
    return _Start(task, source, folder, checkpoint, content, claim, origin and origin.facts)


def _must_pass_trial(recipe: Recipe) -> None:
    """Raises InputError where an encoding that is no part of the zoo does what none may."""
    names = [name for _, name in encodings_in(recipe.as_dict()["model"]["encoding"], ())]
    if not all(registry.encodings.describe(name).builtin for name in names):
        from zoo.contract.trial import must_pass_trial  # not needed by any other training

        must_pass_trial(recipe)


def _train(recipe: Recipe, start: _Start, ending: Ending) -> tuple[Path, bool]:
    """Train to the end. Returns the run folder, and whether this is the first process."""
    source, folder, task, content = start.source, start.folder, start.task, start.content
    # The weights, the gradients and the optimizer's moments are four times the model that is evaluated next:
    # nobody else may keep them.
    del start.task, start.content
    held = lock_run(folder) if is_first_process() else None
    ending.claim = start.claim
    try:
        if is_first_process():
            ending.identity = FolderIdentity.of(folder)
        if held is not None:
            remove_leftovers(folder)
        trainer, last = make_trainer(
            recipe, task, source, folder, start.checkpoint, start.origin, ending.interruption, content
        )
        written_by = content and content.get(VERSION)
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
            # The inner module, in place: its parameter names stay clean, and Lightning's log outside.
            task.model.compile()
        ending.follow(trainer, last)
        with (
            freed_memory_kept(),
            quiet_writers(ending.is_homeless),
            restoring(start.checkpoint, written_by),
        ):
            if find_launcher() is None and trainer.num_devices > 1:
                ending.children.start(trainer.num_devices, trainer.world_size)
            trainer.fit(task, DataModule(source), ckpt_path=start.checkpoint, weights_only=True)
    except BaseException as error:
        end = ending.of(error, folder)
        if end is error:
            raise
        raise end from error
    finally:
        unlock(held)
    if ending.interruption.asked:
        raise KeyboardInterrupt(ending.interrupted())
    if not last.saved_at:
        raise RunError(
            "training stopped before its first step: is trainer.max_time too short, or limit_train_batches 0?"
        )
    return last.folder, trainer.is_global_zero


def _measure(recipe: Recipe, source: DataSource, folder: Path, ending: Ending) -> None:
    try:
        gc.collect()  # the trainer, the model and the optimizer know each other
        finish(recipe, source, folder, ending.identity)
    except KeyboardInterrupt:
        if ending.is_homeless():
            raise KeyboardInterrupt(ending.interrupted()) from None
        again = resume_command(folder)
        raise KeyboardInterrupt(f"interrupted while it was evaluated; saved; continue: {again}") from None
