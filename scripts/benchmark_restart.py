"""Measure the start of a run that resumes within an epoch of a large corpus, relative to a new run.

    python scripts/benchmark_restart.py                     2e8 tokens
    python scripts/benchmark_restart.py --tokens 1e9

Each side is a process of its own, from its start to the end of its first step, reported in parts. The corpus
is made of random tokens, written as the token cache writes them; the checkpoint is one of a few steps, moved
to nine tenths of the epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS, DOCUMENT, PIECE = 4, 1000, 1_000_000  # tokens of a document, and tokens drawn at once
PARTS = ("imports", "data", "trainer", "restoring", "first batch", "first step")
STARTED = "ZOO_BENCHMARK_STARTED"


def settings(folder: Path) -> list[str]:
    data = ["name=sample", f"cache={folder / 'cache'}", "sequence_length=256", "batch_size=8", "workers=0"]
    model = ["d_model=64", "num_layers=2", "num_heads=2"]
    return [
        *(f"data.{one}" for one in data),
        *(f"model.{one}" for one in model),
        *("name=restart", "optimizer.schedule=constant", "trainer.accelerator=cpu", "evaluate.lengths=[256]"),
        *("trainer.limit_val_batches=0", "checkpoint.every_n_steps=1000000000", "logging=[csv]"),
    ]


def enlarge(cache: Path, tokens: int) -> None:
    """Give the training split of a token cache so many random tokens."""
    import numpy as np

    from zoo.data.text.cache import META, write_meta
    from zoo.data.text.tokens import DOCUMENTS, TOKENS

    meta = json.loads((cache / META).read_text())
    draws = np.random.default_rng(0)
    for suffix in (TOKENS, DOCUMENTS):
        (cache / f"train{suffix}").unlink()  # it may be mapped
    with (cache / f"train{TOKENS}").open("wb") as file:
        for _ in range(tokens // PIECE):
            file.write(draws.integers(0, meta["vocab_size"], PIECE, dtype=np.uint16).tobytes())
    np.save(cache / f"train{DOCUMENTS}", np.arange(tokens // DOCUMENT, dtype=np.int64) * DOCUMENT)
    write_meta(cache, meta)


def move_on(checkpoint: Path, by: int) -> None:
    """Have a checkpoint be of a step so much later in the same epoch."""
    import torch

    def counted(tree: Any) -> None:
        for key, value in tree.items():
            if isinstance(value, dict):
                counted(value)
            elif key in ("ready", "started", "processed", "completed") and value:
                tree[key] = value + by

    content = torch.load(checkpoint, weights_only=True)
    loop = content["loops"]["fit_loop"]
    for name, progress in loop.items():
        if name.startswith("epoch_loop.") and "val_loop" not in name:
            counted(progress)
    loop["epoch_loop.state_dict"]["_batches_that_stepped"] += by
    loop["state_dict"]["combined_loader"][0]["batches"] += by
    content["global_step"] += by
    for schedule in content["lr_schedulers"]:
        schedule["last_epoch"] += by
        schedule["_step_count"] += by
    content["zoo_card"]["steps"] += by
    torch.save(content, checkpoint)


def measured(arguments: list[str]) -> None:
    """Run `zoo` in this process to the end of its first step, and print how long each part took."""
    times = [time.time()]
    from zoo.training import fit as training
    from zoo.training.module import TaskModule

    times.append(time.time())

    def timed(owner: Any, name: str, last: bool = False) -> None:
        real = getattr(owner, name)

        def timing(*given: Any, **named: Any) -> Any:
            result = real(*given, **named)
            times.append(time.time())
            if last:
                began = float(os.environ[STARTED])
                ends = times[1:]
                seconds = [end - begin for begin, end in zip([began, *ends], ends, strict=False)]
                print(json.dumps({"seconds": seconds, "step": given[0].global_step}))
                sys.stdout.flush()
                os._exit(0)
            return result

        setattr(owner, name, timing)

    timed(training, "open_data")
    timed(training, "make_trainer")
    timed(TaskModule, "on_train_start")
    timed(TaskModule, "on_train_batch_start")
    timed(TaskModule, "on_train_batch_end", last=True)
    from zoo import cli

    sys.exit(cli.main(arguments))


def side(arguments: list[str], step: int) -> list[float]:
    """Seconds of each part of a run's start, whose first step must be this one."""
    environment = {**os.environ, STARTED: str(time.time())}
    command = [sys.executable, __file__, "--measured", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["step"] == step, f"it began at step {result['step']} and not at {step}"
    return result["seconds"]


def main() -> None:
    if sys.argv[1:2] == ["--measured"]:
        measured(sys.argv[2:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=float, default=2e8, help="of the training split (default: 2e8)")
    parser.add_argument("--rounds", type=int, default=3, help="the two sides take turns (default: 3)")
    options = parser.parse_args()
    recipe = Path(__file__).parent.parent / "recipes" / "alibi_sample.yaml"
    with tempfile.TemporaryDirectory() as name:
        compare(recipe, Path(name), int(options.tokens), options.rounds)


def compare(recipe: Path, folder: Path, tokens: int, rounds: int) -> None:
    from zoo.data import open_data
    from zoo.recipe import read_recipe

    source = open_data(read_recipe(recipe, settings(folder)))
    enlarge(source.stream("train").path.parent, tokens)
    sets = [part for one in settings(folder) for part in ("--set", one)]
    fit = ["fit", "--recipe", str(recipe), *sets]
    zoo = [sys.executable, "-m", "zoo", *fit, "--out", str(folder / "run")]
    subprocess.run([*zoo, "--set", f"trainer.max_steps={STEPS}"], check=True, capture_output=True)
    epoch = tokens // 256 // 8
    at = epoch * 9 // 10
    move_on(folder / "run" / "checkpoints" / "last.ckpt", at - STEPS)
    shutil.rmtree(folder / "run" / "evaluation")
    (folder / "run" / "card.json").unlink()
    sides: dict[str, list[list[float]]] = {"fresh": [], "resumed": []}
    for number in range(rounds):
        later = ["--set", f"trainer.max_steps={2 * epoch}"]
        sides["fresh"].append(side([*fit, *later, "--out", str(folder / f"fresh{number}")], 1))
        sides["resumed"].append(side([*fit, *later, "--out", str(folder / "run"), "--resume"], at + 1))
    print(f"{tokens:.0e} tokens, step {at} of {epoch} in the epoch; seconds, best of {rounds}")
    print("         ", *(f"{part:>12}" for part in (*PARTS, "all")))
    for name, values in sides.items():
        best = [min(column) for column in zip(*values, strict=True)]
        print(f"{name:9} ", *(f"{value:12.2f}" for value in (*best, min(map(sum, values)))))
    ratio = min(map(sum, sides["resumed"])) / min(map(sum, sides["fresh"]))
    print(f"a resumed start takes {ratio:.2f} times a fresh one")


if __name__ == "__main__":
    main()
