"""What `fit` prints before and after the training, and the first evaluation."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from zoo.data.source import DataSource
from zoo.errors import InputError, RunError
from zoo.evaluation.measure import measure
from zoo.evaluation.measurement import Measurement, flat_rows
from zoo.files import full_disk_message, is_disk_full
from zoo.recipe import Recipe
from zoo.recipe.encoding import encoding_label
from zoo.reports.run_report import run_report, store_results, summary_line
from zoo.reports.text import console, terminal
from zoo.runs.folder import LAST, RECIPE, RUNS
from zoo.runs.folder_identity import FolderIdentity
from zoo.runs.load import read_checkpoint
from zoo.tasks import build_task
from zoo.tasks.task import Task


def opening_line(recipe: Recipe, task: Task, folder: Path, checkpoint: Path | None) -> str:
    parameters = sum(p.numel() for p in task.model.parameters())
    verb = "continuing" if checkpoint else "training"
    start = f", from {recipe.init_from}" if recipe.init_from and not checkpoint else ""
    where = f"{folder}{_why_numbered(recipe, folder, checkpoint)}"
    article = "an" if recipe.model.kind == "encoder" else "a"
    return (
        f"{verb} {recipe.name}: {encoding_label(recipe.model.encoding)} in {article} {recipe.model.kind} of "
        f"{parameters / 1e6:.2f} M parameters on {recipe.data.name}, length {recipe.data.sequence_length}, "
        f"{recipe.trainer.max_steps} steps{start}; run folder {where}"
    )


def _why_numbered(recipe: Recipe, folder: Path, checkpoint: Path | None) -> str:
    """Why a new run is in NAME-2 and not in NAME."""
    first = RUNS / recipe.name
    numbered = folder.parent == RUNS and re.fullmatch(re.escape(recipe.name) + r"-\d+", folder.name)
    if checkpoint is not None or not numbered or not (first / RECIPE).exists():
        return ""
    return f" ({first} holds an earlier run; --resume continues one)"


def finish(recipe: Recipe, source: DataSource, folder: Path, identity: FolderIdentity) -> None:
    """Evaluate the saved checkpoint, as `evaluate` would, and print the results.

    Raises:
        RunError: the disk is full, or the folder is gone.
    """
    try:
        _finish(recipe, source, folder, identity)
    except (OSError, InputError) as error:
        if identity.is_gone():
            raise identity.lost("before it was evaluated") from error
        if isinstance(error, InputError):
            raise
        if not is_disk_full(error):
            raise
        command = shlex.join(["python", "-m", "zoo", "evaluate", str(folder)])
        message = f"{full_disk_message(error, folder)}. The run is trained and saved"
        raise RunError(f"{message}; make room, then measure it: {command}") from error


def _finish(recipe: Recipe, source: DataSource, folder: Path, identity: FolderIdentity) -> None:
    checkpoint = folder / LAST
    content = read_checkpoint(checkpoint)
    task = build_task(recipe, source.vocab_size)
    task.load_state_dict(content["state_dict"])
    task.card = content["zoo_card"]
    measurements: list[Measurement] = []

    def save(measured: list[Measurement]) -> None:
        measurements.extend(measured)
        if identity.is_gone():
            raise identity.lost("while it was evaluated")
        store_results(folder, measured)

    try:
        measure(task, source, folder, checkpoint, save=save)
    finally:
        if measurements:
            print(console(run_report(folder, measurements), *terminal()), flush=True)
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
    print(summary_line(flat_rows(measurements)), flush=True)
    if len(lengths) > 1:
        print(f"look further: {shlex.join(command)}", flush=True)
