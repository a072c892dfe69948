"""The costs of a training step, as ratios measured in one run.

    python scripts/benchmark_step.py                Lightning with our callbacks against a bare loop
    python scripts/benchmark_step.py --precision bf16-mixed
    python scripts/benchmark_step.py --allocator    with freed memory kept, against without
    python scripts/benchmark_step.py --recipe recipes/alibi_maxindex.yaml --steps 40

Both sides train the same model from the same start on the same batches: by default a small one, of width 128,
4 layers and length 128, on 16 sequences of a vocabulary of 4096. They take turns, in rounds, each first in
every second one, and the ratio is taken round by round, so that a machine whose speed drifts slows both. Also
shown is the share of a step in which Lightning's loop waits for the loader.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from zoo.data import open_data
from zoo.data.loader import ResumableLoader
from zoo.data.source import DataSource
from zoo.memory import freed_memory_kept
from zoo.recipe import Recipe, read_recipe
from zoo.tasks import build_task
from zoo.training.module import TaskModule
from zoo.training.run import TrainingRun
from zoo.training.run_status import RunStatus
from zoo.training.trainer import DataModule, hide_library_messages, make_trainer

RECIPES = Path(__file__).parent.parent / "recipes"
SMALL = ["num_layers=4", "num_heads=4", "d_model=128"]
SMALL_DATA = ["vocab_size=4096", "sequence_length=128", "batch_size=16"]


class Clock(pl.Callback):
    """When the steps of interest began and ended."""

    def __init__(self, skip: int):
        self.skip = skip
        self.start = self.stop = 0.0

    def on_train_batch_start(self, trainer, module, batch, index) -> None:
        if trainer.global_step == self.skip and not self.start:
            self.start = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, index) -> None:
        self.stop = time.perf_counter()


class TimedLoader:
    """A loader, and how long its batches were waited for after the first `skip`."""

    def __init__(self, loader: ResumableLoader, skip: int):
        self.loader, self.skip = loader, skip
        self.handed_out, self.waited = 0, 0.0

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        batches, end = iter(self.loader), object()
        while True:
            began = time.perf_counter()
            batch = next(batches, end)
            self.waited += time.perf_counter() - began if self.handed_out > self.skip else 0.0
            if batch is end:
                return
            self.handed_out += 1
            yield batch


class TimedData(DataModule):
    """The data of a run, whose loader is timed."""

    def __init__(self, source: DataSource, skip: int):
        super().__init__(source)
        self.skip = skip

    def train_dataloader(self) -> TimedLoader:
        self.loader = TimedLoader(super().train_dataloader(), self.skip)
        return self.loader


def bare(recipe: Recipe, source, skip: int) -> float:
    """Seconds per step of the shortest loop that trains the same."""
    task = build_task(recipe, source.vocab_size)
    setup = TaskModule(task).configure_optimizers()
    optimizer, schedule = setup["optimizer"], setup["lr_scheduler"]["scheduler"]
    steps, start = recipe.trainer.max_steps, 0.0
    mixed = recipe.trainer.precision == "bf16-mixed"
    precision = torch.autocast("cpu", torch.bfloat16) if mixed else nullcontext()
    for step, batch in zip(range(steps), source.train_loader(), strict=False):
        if step == skip:
            start = time.perf_counter()
        with precision:
            loss = task.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(task.model.parameters(), recipe.trainer.gradient_clip_val)
        optimizer.step()
        schedule.step()
    return (time.perf_counter() - start) / (steps - skip)


def lightning(recipe: Recipe, source, skip: int) -> tuple[float, float]:
    """Seconds per step of `zoo fit`, its logs and callbacks included, and the share waited for the loader."""
    task = build_task(recipe, source.vocab_size)
    clock, data = Clock(skip), TimedData(source, skip)
    with tempfile.TemporaryDirectory() as folder:
        status = RunStatus()
        status.run = TrainingRun(recipe, folder=Path(folder))
        trainer = make_trainer(status.run, task, source, status)
        trainer.callbacks.append(clock)
        trainer.fit(TaskModule(task), data)
    seconds = clock.stop - clock.start
    return seconds / (recipe.trainer.max_steps - skip), data.loader.waited / seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", help="one as it is, instead of the small size")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--precision", choices=("32-true", "bf16-mixed"), default="32-true")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--allocator", action="store_true", help="compare the allocator's settings instead")
    parser.add_argument("--only", choices=("kept", "given-back"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    hide_library_messages()
    skip = options.steps // 6
    settings = [
        f"trainer.max_steps={options.steps}",
        f"trainer.precision={options.precision}",
        "compile=false",
        "checkpoint.every_n_steps=1000000",
        "trainer.accelerator=cpu",
    ]
    if options.recipe is None:
        settings += [*(f"model.{one}" for one in SMALL), *(f"data.{one}" for one in SMALL_DATA)]
    recipe = read_recipe(options.recipe or RECIPES / "alibi_sample.yaml", [*settings, *options.set])
    if options.only:
        with freed_memory_kept() if options.only == "kept" else nullcontext():
            print(bare(recipe, open_data(recipe), skip))
        return
    names = ("kept", "given back") if options.allocator else ("Lightning", "bare loop")
    pairs, waits = [], []
    for turn in range(options.rounds):
        if options.allocator:
            # The setting is the process's, so each side gets one of its own.
            pair = tuple(
                float(subprocess.check_output([sys.executable, *sys.argv, "--only", only]).split()[-1])
                for only in ("kept", "given-back")
            )
        else:
            with freed_memory_kept():  # as `zoo fit` does
                second = bare(recipe, open_data(recipe), skip) if turn % 2 else None
                first, wait = lightning(recipe, open_data(recipe), skip)
                pair = first, second or bare(recipe, open_data(recipe), skip)
            waits.append(wait)
        pairs.append(pair)
        print(f"round {turn + 1}: {names[0]} {pair[0] * 1e3:.1f} ms, {names[1]} {pair[1] * 1e3:.1f} ms, "
              f"ratio {pair[0] / pair[1]:.3f}", flush=True)  # fmt: skip
    ratios = [a / b for a, b in pairs]
    print(f"{names[0]} / {names[1]}: median {statistics.median(ratios):.3f}, "
          f"from {min(ratios):.3f} to {max(ratios):.3f}")  # fmt: skip
    if waits:
        print(f"waiting for the loader: {100 * statistics.median(waits):.2f} % of a step")


if __name__ == "__main__":
    main()
