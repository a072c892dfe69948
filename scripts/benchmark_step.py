"""What a training step costs, by ratios measured in one run.

    python scripts/benchmark_step.py                Lightning against a bare loop, max-index at width 128
    python scripts/benchmark_step.py --allocator    with freed memory kept, against without
    python scripts/benchmark_step.py --recipe recipes/alibi_sample.yaml --steps 40

Both sides train the same model from the same start on the same batches. They take turns, in rounds, and the
ratio is taken round by round, so that a machine whose speed drifts slows both.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import lightning.pytorch as pl
import torch

from zoo.data import open_data
from zoo.memory import freed_memory_kept
from zoo.recipe import Recipe, read_recipe
from zoo.tasks import build_task
from zoo.training.library_messages import hide_library_messages
from zoo.training.trainer import DataModule, make_trainer


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


def bare(recipe: Recipe, source, skip: int) -> float:
    """Seconds per step of the shortest loop that trains the same."""
    task = build_task(recipe, source.vocab_size)
    setup = task.configure_optimizers()
    optimizer, schedule = setup["optimizer"], setup["lr_scheduler"]["scheduler"]
    steps, start = recipe.trainer.max_steps, 0.0
    for step, batch in zip(range(steps), source.train_loader(), strict=False):
        if step == skip:
            start = time.perf_counter()
        loss = task.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(task.parameters(), recipe.trainer.gradient_clip_val)
        optimizer.step()
        schedule.step()
    return (time.perf_counter() - start) / (steps - skip)


def lightning(recipe: Recipe, source, skip: int) -> float:
    """Seconds per step of `zoo fit`, its logs and callbacks included."""
    task = build_task(recipe, source.vocab_size)
    clock = Clock(skip)
    with tempfile.TemporaryDirectory() as folder:
        trainer, _ = make_trainer(recipe, task, source, Path(folder))
        trainer.callbacks.append(clock)
        trainer.fit(task, DataModule(source))
    return (clock.stop - clock.start) / (recipe.trainer.max_steps - skip)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="recipes/alibi_maxindex.yaml")
    parser.add_argument("--set", action="append", default=["model.d_model=128"], metavar="KEY=VALUE")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--allocator", action="store_true", help="compare the allocator's settings instead")
    parser.add_argument("--only", choices=("kept", "given-back"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    hide_library_messages()
    skip = options.steps // 6
    steps = [
        f"trainer.max_steps={options.steps}",
        "checkpoint.every_n_steps=1000000",
        "trainer.accelerator=cpu",
    ]
    recipe = read_recipe(options.recipe, [*steps, *options.set])
    if options.only:
        with freed_memory_kept() if options.only == "kept" else nullcontext():
            print(bare(recipe, open_data(recipe), skip))
        return
    names = ("kept", "given back") if options.allocator else ("Lightning", "bare loop")
    pairs = []
    for turn in range(options.rounds):
        if options.allocator:
            # The setting is the process's, so each side gets one of its own.
            pair = tuple(
                float(subprocess.check_output([sys.executable, *sys.argv, "--only", only]).split()[-1])
                for only in ("kept", "given-back")
            )
        else:
            source = open_data(recipe)
            first, second = lightning(recipe, source, skip), bare(recipe, open_data(recipe), skip)
            pair = (first, second)
        pairs.append(pair)
        print(f"round {turn + 1}: {names[0]} {pair[0] * 1e3:.1f} ms, {names[1]} {pair[1] * 1e3:.1f} ms, "
              f"ratio {pair[0] / pair[1]:.3f}", flush=True)  # fmt: skip
    ratios = [a / b for a, b in pairs]
    print(f"{names[0]} / {names[1]}: median {statistics.median(ratios):.3f}, "
          f"from {min(ratios):.3f} to {max(ratios):.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
