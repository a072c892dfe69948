"""A recipe becomes a trained and measured model in a run folder."""

from __future__ import annotations

import gc
from pathlib import Path

from zoo.data import open_data
from zoo.errors import RunError
from zoo.launch.ranks import is_first_process
from zoo.memory import freed_memory_kept
from zoo.recipe import Recipe
from zoo.training.finish import finish, opening
from zoo.training.module import TaskModule
from zoo.training.run import Resume, TrainingRun, find_start
from zoo.training.run_status import RunStatus
from zoo.training.trainer import DataModule, hide_library_messages, make_trainer


def fit(recipe: Recipe, out: Path | None = None, resume: Resume = False) -> TrainingRun:
    """Train, and evaluate at the recipe's lengths.

    Args:
        recipe: a resolved recipe.
        out: the run folder; by default runs/NAME, or the next free number after it.
        resume: continue the run in `out`, or the newest of this name, from its last checkpoint, or from the
            beginning without one; "auto": if there is such a run, else begin one.

    Raises:
        InputError: data, a folder or a recipe that cannot be used.
        RunError: training failed; the run folder keeps its checkpoints.
        KeyboardInterrupt: Ctrl-C, SIGTERM or the warning of SLURM; its text has the step of the run and how
            to continue it.
    """
    hide_library_messages()
    with RunStatus().reported() as status:
        # Nothing is written before all checks have passed.
        run = status.run = find_start(recipe, out, resume)
        source = open_data(run.recipe)
        run.validate(source)
        task = run.build(source)
        run.open()
        trainer = make_trainer(run, task, source, status)
        if is_first_process():
            run.write_start(source)
            print(opening(run, task, source), flush=True)
        if run.recipe.compile:
            task.model.compile()  # in place: keeps parameter names, and does not compile Lightning's logging
        with freed_memory_kept():
            trainer.fit(TaskModule(task), DataModule(source), ckpt_path=run.checkpoint, weights_only=True)
        status.trained()
        if not run.saved_at:
            raise RunError("no step was trained: trainer.max_time is too short")
        # The first process measures alone, without the trainer and the optimizer in memory.
        del trainer, task
        gc.collect()
        if is_first_process():
            run.measurements, run.closing = finish(run, source)
    return run
