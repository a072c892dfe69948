"""Stands in for `python -m zoo fit`: the same files in the run folder, without a model, in a forked process.

Files in the working directory control it: `fails` holds names of runs that fail, `kills` of those
that are killed after their first checkpoint, `slow` the seconds that a run takes, `together` the number of
runs that wait for each other. Every run writes its beginning and its end into `times`.

As the `patch` of a forked process it stands in there, without the comparison.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import zoo.sweep.sweep
from zoo.launch.ranks import exit_when_parent_dies
from zoo.recipe import read_recipe
from zoo.runs.folder import RunLock, existing_run, new_run, write_recipe

CARD = {"task": "max_index", "fingerprint": {}, "tokens_seen": 0, "parameters": {}}
ROW = {
    "run": "tiny", "encoding": "alibi", "seed": 0, "checkpoint": "checkpoints/last.ckpt", "train_length": 8,
    "parameters": {},
}  # fmt: skip


def content(name, default=""):
    return Path(name).read_text() if Path(name).is_file() else default


def fit(arguments):
    from measured import store_rows

    exit_when_parent_dies()
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["fit"])
    parser.add_argument("--recipe")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", choices=["auto"])
    options = parser.parse_args(arguments)
    recipe = read_recipe(options.recipe, options.set)
    exists = (options.out / "recipe.yaml").exists()
    folder = existing_run(recipe, options.out)[0] if exists else new_run(recipe, options.out)
    lock = RunLock(folder)
    write_recipe(folder, recipe)
    file = folder / "checkpoints" / "last.ckpt"
    first = int(file.read_text()) if file.exists() else 0
    stop = []
    signal.signal(signal.SIGINT, lambda *_: stop.append(1))
    with open("times", "a") as log:
        log.write(f"begin {recipe.name} {first} {os.environ.get('OMP_NUM_THREADS')} {os.getpid()}\n")

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
    store_rows(folder, rows)
    with open("times", "a") as log:
        log.write(f"end {recipe.name} {steps} - -\n")
    lock.release()


class Forked(subprocess.Popen):
    """A process that runs `fit` instead of its command, and waits for no imports."""

    def __init__(self, command, env, **options):
        def child():
            # The parent waits for the end of a pipe among these.
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            code = 1
            try:
                os.environ.clear()
                os.environ.update(env)
                # pytest has its own files here.
                sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1)
                fit(command[3:])
                code = 0
            except SystemExit as ending:
                code = ending.code
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)

        super().__init__(["stub"], preexec_fn=child, **options)


PROCESSES = SimpleNamespace(**vars(subprocess) | {"Popen": Forked})
"""Stands in for `subprocess` in `zoo.sweep.sweep`."""

if __name__ == "<run_path>":
    import zoo.reports.compare

    zoo.sweep.sweep.subprocess = PROCESSES
    zoo.reports.compare.compare = lambda paths, out: print("compared", *paths)
