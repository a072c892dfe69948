"""A recipe becomes a trained model in a run folder."""

from __future__ import annotations

import gc
import shlex
from pathlib import Path

from zoo.data import open_data
from zoo.data.source import DataSource
from zoo.errors import RunError
from zoo.evaluation.evaluate import evaluate_task
from zoo.evaluation.protocols import Row
from zoo.evaluation.results import must_take_results, store_rows
from zoo.evaluation.tables import rows_as_text, summary_line
from zoo.memory import freed_memory_kept, is_out_of_memory
from zoo.recipe import Recipe, must_train
from zoo.recipe.options import encoding_label
from zoo.runs.checkpoint import read_checkpoint
from zoo.runs.folder import (
    LAST,
    give_up,
    hold,
    is_first_process,
    let_go,
    must_be_free,
    new_run,
    old_run,
    write_recipe,
)
from zoo.runs.origin import must_have_same_tokens, read_origin, start_from
from zoo.tasks import must_build, task_class
from zoo.tasks.task import Task
from zoo.training.checkpoints import LastCheckpoint
from zoo.training.data_module import DataModule
from zoo.training.interruption import Stopped
from zoo.training.loggers import must_be_installed
from zoo.training.quiet import quieten
from zoo.training.resume import resume_command, resume_point
from zoo.training.trainer import make_trainer


def fit(recipe: Recipe, out: Path | None = None, resume: bool = False) -> Path:
    """Train, evaluate at the recipe's lengths, and say where everything is.

    Args:
        recipe: a resolved recipe.
        out: the run folder; by default runs/NAME, or the next free number after it.
        resume: continue the run in `out`, or the newest of this name, from its last checkpoint.

    Returns: the run folder.

    Raises:
        InputError: data that cannot be had, a folder that is taken, a recipe that cannot be run here.
        RunError: training failed; what was saved stays in the run folder.
        KeyboardInterrupt: Ctrl-C; its text says where the run stands and how to continue it.
    """
    quieten()
    must_train(recipe)
    must_be_installed(recipe)
    must_build(recipe)
    checkpoint = claim = origin = None
    if resume:
        folder = old_run(recipe, out)
        checkpoint = resume_point(folder, recipe)
        must_take_results(folder)
    elif out is not None and is_first_process():
        must_be_free(out)
    if recipe.init_from is not None and not resume:
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

    if not resume:
        # Only the first process claims a folder; the others learn of it once they have met.
        claim = new_run(recipe, out) if is_first_process() else None
        folder = claim.folder if claim else Path()
    held = hold(folder) if is_first_process() else None
    trainer = last = None
    try:
        trainer, last = make_trainer(recipe, task, source, folder, checkpoint, origin and origin.facts)
        source.train_loader(trainer.global_rank, trainer.world_size)
        if trainer.is_global_zero:
            write_recipe(folder, recipe)
            source.save_tokenizer(folder)
            print(_opening_line(recipe, task, folder, checkpoint), flush=True)
        if recipe.compile:
            # The inner module, in place: its parameter names stay clean, and Lightning's log outside.
            task.model.compile()
        with freed_memory_kept():
            trainer.fit(task, DataModule(source), ckpt_path=checkpoint, weights_only=True)
        interrupted = last.interruption.asked
    except BaseException as error:
        step = 0 if trainer is None else trainer.global_step
        if claim is not None and step == 0:
            give_up(claim)
        interrupted = isinstance(error, Stopped | KeyboardInterrupt) or (
            # Lightning turns Ctrl-C into an exit of its own.
            isinstance(error, SystemExit) and isinstance(error.__context__, KeyboardInterrupt)
        )
        if interrupted:
            raise _interruption(step, last) from None
        if is_out_of_memory(error):
            raise RunError(_out_of_memory(recipe)) from error
        raise
    finally:
        if last is not None:
            last.interruption.restore()
        let_go(held)
    if interrupted:
        raise _interruption(trainer.global_step, last)
    if not last.saved_at:
        raise RunError("training stopped before its first step: is trainer.max_time too short?")
    first, folder = trainer.is_global_zero, last.folder
    # The weights, the gradients and the optimizer's moments are four times the model that is evaluated next.
    del trainer, last, task
    gc.collect()
    if first:
        _finish(recipe, source, folder)
    return folder


def _interruption(step: int, last: LastCheckpoint | None) -> BaseException:
    """What ends an interrupted run; only the first process says how to continue it."""
    if last is not None and not is_first_process():
        return SystemExit(130)
    # Before Lightning has taken up a resumed run it counts from 0.
    step = max(step, last.saved_at if last else 0)
    text = f"interrupted at step {step}"
    if last is None or not last.saved_at:
        return KeyboardInterrupt(f"{text}; nothing was saved")
    saved = "saved" if last.saved_at == step else f"the last checkpoint is of step {last.saved_at}"
    return KeyboardInterrupt(f"{text}; {saved}; continue: {resume_command(last.folder)}")


def _task(recipe: Recipe, vocab_size: int) -> Task:
    return task_class(recipe.task.name)(recipe.as_dict(), vocab_size)


def _finish(recipe: Recipe, source: DataSource, folder: Path) -> None:
    """Evaluate what was saved, which is what everybody else will evaluate, and say what came out."""
    checkpoint = folder / LAST
    content = read_checkpoint(checkpoint)
    task = _task(recipe, source.vocab_size)
    task.load_state_dict(content["state_dict"])
    task.card = content["zoo_card"]
    rows: list[Row] = []

    def keep(measured: list[Row]) -> None:
        rows.extend(measured)
        store_rows(folder, measured)

    try:
        evaluate_task(task, source, folder, checkpoint, keep=keep)
    finally:
        if rows:
            print(rows_as_text(rows), flush=True)
    trained, limit = recipe.data.sequence_length, task.model.encoding.max_length
    lengths = [str(trained * 2**i) for i in range(5) if limit is None or trained * 2**i <= limit]
    command = ["python", "-m", "zoo", "evaluate", str(folder), "--lengths", ",".join(lengths)]
    if recipe.plugins:
        # A plugin is code: it runs only where the user names it.
        command += ["--set", f"plugins=[{', '.join(recipe.plugins)}]"]
    steps, wanted = content["global_step"], recipe.trainer.max_steps
    if steps < wanted:
        # The time of the runs before counts too.
        more = " and a longer trainer.max_time" if recipe.trainer.flags().get("max_time") else ""
        print(f"\nstopped at step {steps} of {wanted}; continue with --resume{more}; it is in {folder}")
    else:
        print(f"\ndone: {recipe.name} is in {folder}")
    print(summary_line(rows), flush=True)
    if len(lengths) > 1:
        print(f"look further: {shlex.join(command)}", flush=True)


def _opening_line(recipe: Recipe, task: Task, folder: Path, checkpoint: Path | None) -> str:
    parameters = sum(p.numel() for p in task.model.parameters())
    verb = "continuing" if checkpoint else "training"
    start = f", from {recipe.init_from}" if recipe.init_from and not checkpoint else ""
    article = "an" if recipe.model.kind == "encoder" else "a"
    return (
        f"{verb} {recipe.name}: {encoding_label(recipe.model.encoding)} in {article} {recipe.model.kind} of "
        f"{parameters / 1e6:.2f} M parameters on {recipe.data.name}, length {recipe.data.sequence_length}, "
        f"{recipe.trainer.max_steps} steps{start}; run folder {folder}"
    )


def _out_of_memory(recipe: Recipe) -> str:
    return (
        f"out of memory: batches of {recipe.data.batch_size} x {recipe.data.sequence_length} tokens at "
        f"d_model {recipe.model.d_model}, {recipe.model.num_layers} layers. Raise "
        f"trainer.accumulate_grad_batches (the result stays the same), or lower data.batch_size or "
        f"data.sequence_length"
    )
