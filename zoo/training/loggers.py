"""Where numbers go while training: metrics.csv, TensorBoard, Weights & Biases."""

from __future__ import annotations

import csv
import importlib.util
import io
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from zoo.errors import InputError, Problem
from zoo.files import atomic_write, is_disk_full, raise_disk_full
from zoo.launch.ranks import is_first_process
from zoo.recipe import Recipe
from zoo.runs.folder import METRICS
from zoo.runs.metrics_csv import read_metrics


class CsvLog(Logger):
    """metrics.csv in the run folder, a row for each logged step.

    Lightning's own CSV logger deletes the file of an earlier start; this one keeps it, up to the step that a
    resumed run starts from. Raises InputError for a file that no run has written.
    """

    name, version = "csv", 0

    def __init__(self, folder: Path, keep_to_step: int = 0):
        super().__init__()
        self.path = folder / METRICS
        self.columns = ["step"]
        self.rows: list[dict[str, Any]] = []
        self.in_file = False
        if keep_to_step:
            columns, rows = read_metrics(self.path)
            self.columns = columns or self.columns
            self.rows = [row for row in rows if int(row["step"]) <= keep_to_step]

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """The recipe is in the run folder already."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        row = {"step": step, **{key: value for key, value in metrics.items() if key != "epoch"}}
        fits = self.in_file and set(row) <= set(self.columns)
        self.columns += [key for key in row if key not in self.columns]
        # What is logged for one step in two calls is one row.
        again = bool(self.rows) and int(self.rows[-1]["step"]) == step
        if again:
            self.rows[-1].update(row)
        else:
            self.rows.append(row)
        # Written at once: a run that is killed keeps what it has logged.
        if fits and not again:
            with raise_disk_full(self.path), self.path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self.columns, restval="").writerow(row)
        else:
            self.save()

    def finalize(self, status: str) -> None:
        """Every row was written when it was logged; the folder of a run that failed may be gone."""

    @rank_zero_only
    def save(self) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.columns, restval="")
        writer.writeheader()
        writer.writerows(self.rows)
        atomic_write(self.path, text.getvalue())
        self.in_file = True


def validate_installed(recipe: Recipe) -> None:
    """Raises InputError for a logger or a number format whose package is missing."""
    engine = recipe.trainer.precision.startswith("transformer-engine")
    for wanted, module, package, key in (
        ("wandb" in recipe.logging, "wandb", "wandb", "logging"),
        (engine, "transformer_engine", "transformer-engine[pytorch]", "trainer.precision"),
    ):
        if wanted and importlib.util.find_spec(module) is None:
            raise InputError(Problem(f"{module} is not installed: pip install {package}", key=key))


def make_loggers(recipe: Recipe, folder: Path, keep_to_step: int) -> list[Logger]:
    """The loggers that the recipe asks for; those of a resumed run go on after `keep_to_step`."""
    loggers: list[Logger] = []
    if "csv" in recipe.logging:
        loggers.append(log := CsvLog(folder, keep_to_step))
        if keep_to_step >= recipe.trainer.log_every_n_steps and not log.rows and is_first_process():
            lost = f"no rows up to step {keep_to_step}, from which the run goes on: the curve begins there"
            print(f"warning: {log.path}: {lost}", file=sys.stderr)
    if "tensorboard" in recipe.logging:
        # What lies there is of this run, killed after that step or before its first checkpoint.
        purge = keep_to_step + 1 if (folder / "tensorboard").exists() else None
        loggers.append(
            TensorBoardLogger(folder, "tensorboard", version="", default_hp_metric=False, purge_step=purge)
        )
    if "wandb" in recipe.logging:
        from lightning.pytorch.loggers import WandbLogger

        loggers.append(WandbLogger(name=recipe.name, save_dir=folder, project="positional-encoding-zoo"))
    return loggers


@contextmanager
def hide_writer_tracebacks(folder_is_gone: Callable[[], bool]) -> Iterator[None]:
    """TensorBoard writes in a thread, and hands an error to the main one with the next number that it gets.

    A full disk, and a run folder that was removed (`folder_is_gone`), are reported there, once: the thread's
    own traceback is hidden.
    """
    shown = threading.excepthook

    def show(what: Any) -> None:
        if what.exc_value is None or not (is_disk_full(what.exc_value) or folder_is_gone()):
            shown(what)

    threading.excepthook = show
    try:
        yield
    finally:
        threading.excepthook = shown
