"""The training and evaluation of the entries of a study, and their rows in its table."""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from zoo import registry
from zoo.comparison import stored
from zoo.comparison.run_info import RunInfo
from zoo.comparison.runs import run_info
from zoo.console import duration
from zoo.data.text.datasets import default_root
from zoo.errors import InputError, RunError
from zoo.evaluation.evaluate import evaluate_runs
from zoo.evaluation.measurement import Measurement, merged
from zoo.launch.devices import processor
from zoo.runs.card import steps_done
from zoo.runs.folder import LAST, RECIPE, RUNS, kept_checkpoint, stored_recipe
from zoo.sweep.study import Entry, Reading


def give_way() -> None:
    """Let other processes have the cores first."""
    os.nice(19)
    # Linux shares the cores among sessions, and nice acts within one. A session that `setsid` has made is
    # the queue's alone; another one is the user's, whose other commands must not give way.
    group = Path("/proc/self/autogroup")
    if group.exists() and os.getsid(0) == os.getpid():
        group.write_text("19")


def work_through(entries: Sequence[Entry], limit: int | None = None, keep: bool = False) -> list[str]:
    """Measure the missing entries, at most `limit` of them, and `keep` the run folders or not. Returns the
    names of those that failed."""
    # All modules are imported now: a queue of days computes with the code that it began with.
    for kind in registry.KINDS.values():
        for name in kind.names():
            kind.load(name)
    importlib.import_module("zoo.training.fit")
    failed, started = [], 0
    for entry in entries:
        if started == limit:
            break
        if entry.run:
            continue
        with entry.claimed() as mine:
            if not mine:
                continue
            started += 1
            try:
                run = measured(entry, keep)
            except (InputError, RunError) as error:
                failed.append(entry.path)
                print(f"{entry.study.name} {entry.name}: FAILED: {error}", flush=True)
                continue
            stored.add(entry.table, run)
            print(
                f"{entry.study.name} {entry.name}: {duration(sum(run.origin['seconds'].values()))}",
                flush=True,
            )
    return failed


def measured(entry: Entry, keep: bool = False) -> RunInfo:
    """Train and evaluate an entry in a run folder, which is deleted unless it is to be kept, the process is
    stopped or an evaluation fails: the next one resumes the run there from its last checkpoint.

    Raises:
        InputError: if the folder has a finished run of another recipe.
    """
    from zoo.training.fit import fit

    study, recipe = entry.study, entry.recipe
    folder = RUNS / "studies" / study.name / entry.name
    done = steps_done(folder)
    if (folder / RECIPE).exists() and (there := stored_recipe(folder)) != recipe.as_dict():
        if done == there["trainer"]["max_steps"]:
            raise InputError(f"{folder}: a finished run of another recipe is here; move or delete it")
        shutil.rmtree(folder)
        done = 0
    torch.set_num_threads(study.threads)
    start = time.time()
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            measurements = [*fit(recipe, folder, resume="auto").measurements]
            plugins = [f"plugins={list(recipe.plugins)}"] if recipe.plugins else []
            for sets in entry.changes_after_training:
                measurements += _evaluate([folder], sets=[*plugins, *sets])
            if during := study.during:
                earlier = [kept_checkpoint(folder, step) for step in during.steps]
                measurements += _evaluate(earlier, during.lengths, during.protocols, plugins)
            measurements = merged(measurements)
            for reading in study.readings:
                measurements += _read_again(folder, reading, plugins)
        trained = (folder / LAST).stat().st_mtime
        run = run_info(folder)
        # Of a resumed run: as many times longer as all its steps are more than those done now.
        began = max(start, trained)  # it may have been trained before
        training = (began - start) * recipe.trainer.max_steps / max(1, recipe.trainer.max_steps - done)
        gpu = {"gpu": torch.cuda.get_device_name()} if study.accelerator == "gpu" else {}
        origin = {
            "study": study.name, "encoding": entry.encoding, "seed": entry.seed,
            "machine": {
                "processor": processor(), **gpu, "threads": study.threads, "torch": torch.__version__,
            },
            "seconds": {"training": round(training, 1), "evaluation": round(time.time() - began, 1)},
        }  # fmt: skip
        about = {"path": entry.path, "recipe": recipe.as_dict(), "origin": origin}
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        return replace(run, measurements=tuple(measurements), **about)
    except (InputError, RunError):
        if not keep and steps_done(folder) < recipe.trainer.max_steps:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _evaluate(paths: Sequence[Path], *how: Any, **more: Any) -> list[Measurement]:
    return merged(one for _, measured in evaluate_runs(paths, *how, **more) for one in measured)


def _read_again(folder: Path, reading: Reading, plugins: Sequence[str]) -> list[Measurement]:
    """Evaluate a trained model once more. Its measurements name the reading, not the path of a corpus, which
    differs between machines."""
    corpus = default_root() / reading.data
    data = str(corpus) if corpus.exists() else reading.data
    # The targets of `fixed_targets` depend on the recipe's lengths.
    sets = [*plugins, *reading.set, f"evaluate.lengths={reading.lengths}"]
    found = _evaluate([folder], reading.lengths, reading.protocols, sets, data=data)
    return [one.model_copy(update={"parameters": {**one.parameters, "data": reading.name}}) for one in found]
