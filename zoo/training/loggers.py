"""Loggers of a training: metrics.csv, TensorBoard, Weights & Biases, MLflow."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from zoo.errors import InputError, Problem
from zoo.files import atomic_write, raise_disk_full
from zoo.recipe import Recipe
from zoo.runs.folder import METRICS
from zoo.runs.metrics_csv import read_metrics

PROJECT = "positional-encoding-zoo"
"""The experiment of MLflow."""
TRACKING_URI = "MLFLOW_TRACKING_URI"


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
        # Two calls for one step make one row.
        again = bool(self.rows) and int(self.rows[-1]["step"]) == step
        if again:
            self.rows[-1].update(row)
        else:
            self.rows.append(row)
        # Written at once: a killed run keeps its rows.
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
        ("mlflow" in recipe.logging, "mlflow", "mlflow-skinny", "logging"),
        (engine, "transformer_engine", "transformer-engine[pytorch]", "trainer.precision"),
    ):
        if wanted and importlib.util.find_spec(module) is None:
            raise InputError(Problem(f"{module} is not installed: pip install {package}", key=key))


def make_loggers(recipe: Recipe, folder: Path, keep_to_step: int) -> list[Logger]:
    """The loggers that the recipe asks for; those of a resumed run continue after `keep_to_step`."""
    loggers: list[Logger] = []
    if "csv" in recipe.logging:
        loggers.append(CsvLog(folder, keep_to_step))
    if "tensorboard" in recipe.logging:
        # Events of this run after the checkpoint, or before its first one.
        purge = keep_to_step + 1 if (folder / "tensorboard").exists() else None
        loggers.append(
            TensorBoardLogger(folder, "tensorboard", version="", default_hp_metric=False, purge_step=purge)
        )
    if "wandb" in recipe.logging:
        before = _wandb_id(folder) if keep_to_step else None
        go_on = {} if before is None else {"id": before, "resume": "allow"}
        loggers.append(_wandb_logger(name=recipe.name, save_dir=folder, **recipe.wandb.model_dump(), **go_on))
    if "mlflow" in recipe.logging:
        loggers.append(_mlflow_logger(recipe.name, folder, bool(keep_to_step)))
    return loggers


def _wandb_logger(**options: Any) -> Logger:
    """The logger of Weights & Biases. Once it ends, no other training of this process logs into its run."""
    import wandb
    from lightning.pytorch.loggers import WandbLogger

    class WandbRun(WandbLogger):
        @rank_zero_only
        def finalize(self, status: str) -> None:
            super().finalize(status)
            wandb.finish(exit_code=int(status != "success"))

    return WandbRun(**options)


def _wandb_id(folder: Path) -> str | None:
    """The name in Weights & Biases of the newest run that was logged from this folder."""
    # run-20260101_120000-ID, or offline-run-..., of which wandb itself never removes one.
    found = sorted((folder / "wandb").glob("*run-*-*"), key=lambda path: path.name.split("run-")[-1])
    return found[-1].name.rsplit("-", 1)[1] if found else None


def _mlflow_logger(name: str, folder: Path, goes_on: bool) -> Logger:
    """MLflow's, in `mlflow/` of the run folder, or on the server of MLFLOW_TRACKING_URI. A resumed run goes
    on in the run of MLflow that it began."""
    from lightning.pytorch.loggers import MLFlowLogger

    given = os.environ.get(TRACKING_URI)
    where = given or (folder / "mlflow").absolute().as_uri()
    if not given:
        # MLflow 3 keeps numbers in files only with this variable.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    kept = folder / "mlflow_run"
    run_id = kept.read_text(encoding="utf-8") if goes_on and kept.is_file() else None

    class MLflowRun(MLFlowLogger):
        @rank_zero_only
        def log_hyperparams(self, *given: Any, **named: Any) -> None:
            # MLflow refuses another value of a parameter, such as more steps.
            if run_id is None:
                super().log_hyperparams(*given, **named)
                kept.write_text(self.run_id, encoding="utf-8")

        def finalize(self, status: str = "success") -> None:
            super().finalize(status)
            # MLflow has set it to the address of this run, and the next one of this process would go there.
            os.environ.pop(TRACKING_URI, None)
            os.environ.update({} if given is None else {TRACKING_URI: given})

    return MLflowRun(PROJECT, name, tracking_uri=where, run_id=run_id)


def logging_fault(error: Exception) -> InputError | None:
    """An error of Weights & Biases or MLflow, such as a missing key or server, with the remedy; else None."""
    if type(error).__module__.split(".")[0] not in ("wandb", "mlflow"):
        return None
    advice = "log in by `wandb login` or set WANDB_MODE=offline; for MLflow check MLFLOW_TRACKING_URI"
    return InputError(Problem(f"{error} ({advice})", key="logging"))
