"""Stands in for `python -m zoo fit`: the same files in the run folder, without a model.

Files in the working directory control it: `fails` holds names of runs that fail, `kills` of those
that are killed after their first checkpoint, `slow` the seconds that a run takes, `together` the number of
runs that wait for each other. Every run writes its beginning and its end into `times`.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from zoo.launch.ranks import exit_when_parent_dies
from zoo.recipe import read_recipe
from zoo.runs.folder import existing_run, new_run, write_recipe
from zoo.runs.lock import RunLock

CARD = {"task": "max_index", "fingerprint": {}, "tokens_seen": 0, "parameters": {}}
ROW = {
    "run": "tiny", "encoding": "alibi", "seed": 0, "checkpoint": "checkpoints/last.ckpt", "train_length": 8,
    "parameters": {},
}  # fmt: skip


sys.path.append(str(Path(__file__).parents[1]))


def content(name, default=""):
    return Path(name).read_text() if Path(name).is_file() else default


def main():
    exit_when_parent_dies()
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["fit"])
    parser.add_argument("--recipe")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", choices=["auto"])
    options = parser.parse_args()
    recipe = read_recipe(options.recipe, options.set)
    exists = (options.out / "recipe.yaml").exists()
    folder = existing_run(recipe, options.out) if exists else new_run(recipe, options.out)
    RunLock(folder)
    write_recipe(folder, recipe)
    file = folder / "checkpoints" / "last.ckpt"
    first = int(file.read_text()) if file.exists() else 0
    stop = []
    signal.signal(signal.SIGINT, lambda *_: stop.append(1))
    with open("times", "a") as log:
        log.write(f"begin {recipe.name} {first} {os.environ.get('OMP_NUM_THREADS')}\n")

    while content("times").count("begin") < int(content("together", "0")):
        time.sleep(0.02)

    def save(step):
        file.parent.mkdir(exist_ok=True)
        file.write_text(str(step))
        (folder / "card.json").write_text(json.dumps(CARD | {"steps": step}))

    seconds, steps = float(content("slow", "0")), recipe.trainer.max_steps
    print("training", flush=True)
    for step in range(first + 1, steps + 1):
        time.sleep(seconds / steps)
        if recipe.name in content("fails").split():
            raise ValueError("the loss is NaN")
        if step % recipe.checkpoint.every_n_steps == 0 or step == steps or stop:
            save(step)
            if recipe.name in content("kills").split():
                os.kill(os.getpid(), signal.SIGKILL)
        if stop:
            sys.exit(130)
    rows = [
        ROW | {"step": steps, "protocol": protocol, "length": length}
        for protocol in recipe.evaluate.protocols
        for length in recipe.evaluate.lengths
    ]
    (folder / "metrics.csv").write_text(f"step,val/loss\n{steps},{recipe.optimizer.lr}\n")
    from measured import store_rows

    store_rows(folder, rows)
    with open("times", "a") as log:
        log.write(f"end {recipe.name} {steps} -\n")


main()
