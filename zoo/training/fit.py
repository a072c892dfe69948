"""A recipe becomes a trained and measured model in a run folder."""

from __future__ import annotations

import gc
from pathlib import Path

from zoo import registry
from zoo.data import open_data
from zoo.errors import InputError, Problem, RunError, collect
from zoo.evaluation.measure import unmeasurable_lengths, validation_seen_in_training
from zoo.evaluation.store import validate_results_folder
from zoo.launch.ranks import is_first_process
from zoo.memory import freed_memory_kept
from zoo.recipe import Recipe, validate_trainable
from zoo.recipe.encoding import encodings_in
from zoo.runs.folder import new_run, remove_leftovers, stored_recipe, validate_free, write_recipe
from zoo.runs.init_from import init_weights, read_init_from, validate_same_tokenizer
from zoo.runs.lock import RunLock
from zoo.tasks import build_encoding, build_task
from zoo.training.auto import choose_auto
from zoo.training.finish import few_documents, finish, opening_line
from zoo.training.library_messages import hide_library_messages
from zoo.training.loggers import logging_ended, validate_installed
from zoo.training.plan import plan_of
from zoo.training.resume import (
    Resume,
    resume_point,
    run_to_resume,
    validate_same_data,
)
from zoo.training.run_status import RunStatus
from zoo.training.strategy import validate_precision, validate_world_size
from zoo.training.trainer import DataModule, make_trainer


def validate_plugins(recipe: Recipe) -> None:
    """Raises InputError if an encoding from a plugin breaks a law of the contract."""
    names = [name for _, name in encodings_in(recipe.as_dict()["model"]["encoding"], ())]
    if not all(registry.encodings.describe(name).builtin for name in names):
        from zoo.contract.check import check_plugin  # other trainings do not need it

        check_plugin(recipe)


CHECKS = (validate_trainable, validate_world_size, validate_precision, validate_installed, validate_plugins)
"""Refusals of a recipe that cannot be trained here; all their problems are raised at once."""


def fit(recipe: Recipe, out: Path | None = None, resume: Resume = False) -> Path:
    """Train, evaluate at the recipe's lengths, and print the results.

    Args:
        recipe: a resolved recipe.
        out: the run folder; by default runs/NAME, or the next free number after it.
        resume: continue the run in `out`, or the newest of this name, from its last checkpoint, or from the
            beginning without one; "auto": if there is such a run, else begin one.

    Returns: the run folder.

    Raises:
        InputError: data, a folder or a recipe that cannot be used.
        RunError: training failed; the run folder keeps its checkpoints.
        KeyboardInterrupt: Ctrl-C, SIGTERM or the warning of SLURM; its text has the step of the run and how
            to continue it.
    """
    hide_library_messages()
    status, is_first = RunStatus(), is_first_process()
    with status.reported():
        # Resolve: nothing is written before all checks have passed.
        folder = run_to_resume(recipe, out, resume)
        recipe = choose_auto(recipe, stored_recipe(folder) if folder else None)
        problems: list[Problem] = []
        for check in CHECKS:
            with collect(problems):
                check(recipe)
        if problems:
            raise InputError(problems)
        encoding = build_encoding(recipe)
        checkpoint, content = resume_point(folder, recipe) if folder else (None, None)
        if folder:
            validate_results_folder(folder)
        elif out and is_first:
            validate_free(out)
        origin = task = None
        if recipe.init_from and not checkpoint:
            origin = read_init_from(recipe.init_from)
            task = build_task(encoding, origin.vocab_size)
            init_weights(origin, task)  # before the data, which may take long to prepare

        # Open the data.
        source = open_data(recipe)
        if origin:
            validate_same_tokenizer(origin, source)
        if content:
            validate_same_data(checkpoint, content, source)
        source.train_loader()  # raises for a batch larger than the data

        # Build: the vocabulary of an imported model may be padded.
        known = content and content["hyper_parameters"]["vocab_size"]
        task = task or build_task(encoding, known or source.vocab_size)
        if is_first:
            new = new_run(recipe, out) if folder is None else None
            folder = folder or new
            status.lock = RunLock(folder)
            status.new = new  # removed if it comes to nothing: only a folder that this process holds
        trainer, last = make_trainer(
            recipe, task, source, folder or Path(), status, checkpoint, content, origin and origin.facts
        )
        status.last = last
        del content  # the Trainer frees it after it has restored the run: it is three times the model
        source.train_loader(trainer.global_rank, trainer.world_size)
        if recipe.trainer.limit_val_batches != 0:
            source.valid_loader(trainer.global_rank, trainer.world_size)
        if is_first:
            remove_leftovers(folder)
            write_recipe(folder, recipe)
            source.save_tokenizer(folder)
            plan = plan_of(recipe, source, task.model)
            notes = [*unmeasurable_lengths(task, source), *validation_seen_in_training(task, source)]
            notes += [*plan.warnings(), *few_documents(task, source)]
            print("\n".join([opening_line(recipe, plan, folder, checkpoint), *notes]), flush=True)
        if recipe.compile:
            task.model.compile()  # in place: keeps parameter names, and does not compile Lightning's logging

        # Train.
        with freed_memory_kept(), logging_ended(recipe):
            trainer.fit(task, DataModule(source), ckpt_path=checkpoint, weights_only=True)
        status.trained()
        if not last.saved_at:
            raise RunError("no step was trained: trainer.max_time is too short, or limit_train_batches is 0")

        # Measure: the first process alone, without the trainer and the optimizer in memory.
        del trainer, task, encoding, origin
        gc.collect()
        if is_first:
            finish(recipe, source, folder)
    return last.folder
