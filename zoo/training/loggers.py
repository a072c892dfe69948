"""Where numbers go while training: metrics.csv, TensorBoard, Weights & Biases."""

from __future__ import annotations

import csv
import importlib.util
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from zoo.errors import InputError, Problem
from zoo.recipe import Recipe


class CsvLog(Logger):
    """metrics.csv in the run folder, a row for each logged step.

    Lightning's own CSV logger deletes the file of an earlier start; this one keeps it, up to the step that a
    resumed run starts from.
    """

    def __init__(self, folder: Path, keep_to_step: int = 0):
        super().__init__()
        self.path = folder / "metrics.csv"
        self.columns = ["step"]
        self.rows: list[dict[str, Any]] = []
        if self.path.is_file():
            with self.path.open(newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                self.rows = [row for row in reader if int(row["step"]) <= keep_to_step]
                self.columns = list(reader.fieldnames or self.columns)

    @property
    def name(self) -> str:
        return "csv"

    @property
    def version(self) -> int:
        return 0

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """The recipe is in the run folder already."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        row = {"step": step, **{key: value for key, value in metrics.items() if key != "epoch"}}
        # What is logged for one step in two calls is one row.
        if self.rows and int(self.rows[-1]["step"]) == step:
            self.rows[-1].update(row)
        else:
            self.rows.append(row)

    @rank_zero_only
    def save(self) -> None:
        for row in self.rows:
            self.columns += [key for key in row if key not in self.columns]
        with self.path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.columns, restval="")
            writer.writeheader()
            writer.writerows(self.rows)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        self.save()


def make_loggers(recipe: Recipe, folder: Path, keep_to_step: int) -> list[Logger]:
    """The loggers that the recipe asks for.

    Raises:
        InputError: wandb is asked for and not installed.
    """
    loggers: list[Logger] = []
    for name in recipe.logging:
        if name == "csv":
            loggers.append(CsvLog(folder, keep_to_step))
        elif name == "tensorboard":
            loggers.append(TensorBoardLogger(folder, name="tensorboard", version="", default_hp_metric=False))
        else:
            if importlib.util.find_spec("wandb") is None:
                raise InputError(Problem("wandb is not installed: pip install wandb", key="logging"))
            from lightning.pytorch.loggers import WandbLogger

            loggers.append(WandbLogger(name=recipe.name, save_dir=folder, project="positional-encoding-zoo"))
    return loggers
