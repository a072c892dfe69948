"""The queue of studies: measures every missing entry, one after another, and stores each in its table.

A lock keeps two queues off the same entry, so several processes, machines and SLURM jobs may share a table. A
queue that is stopped drops its current entry, which the next start trains from its beginning.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from zoo import registry
from zoo.comparison import stored
from zoo.comparison.run_info import RunInfo
from zoo.comparison.runs import run_info
from zoo.console import command, duration
from zoo.data.text.datasets import default_root
from zoo.errors import InputError, Problem, RunError, hint
from zoo.evaluation.evaluate import evaluate_runs
from zoo.evaluation.measurement import Measurement, Row, Units, merged
from zoo.evaluation.store import read_measurements
from zoo.launch.devices import processor
from zoo.launch.ranks import PARENT, exit_when_parent_dies
from zoo.launch.slurm import SRUN, sbatch
from zoo.runs.folder import LAST, RUNS, kept_checkpoint
from zoo.sweep.study import Entry, Reading, Study, read_study
from zoo.sweep.sweep import environments, visible_gpus


@dataclass(frozen=True)
class Queue:
    """Studies, worked through in order.

    Attributes:
        files: of the studies.
        store: the folder of the tables; by default that of each file.
        only: encodings; by default all.
        limit: the most entries to measure.
        jobs: processes; by default one for each visible GPU, and on a CPU one.
        nice: whether to give way to other processes.
    """

    files: Sequence[Path]
    store: Path | None = None
    only: Sequence[str] = ()
    limit: int | None = None
    jobs: int | None = None
    nice: bool = False

    def run(self) -> None:
        """Measure the missing entries.

        Raises:
            InputError: every problem of a study, before anything is measured.
            RunError: some entries failed; all others are done.
            KeyboardInterrupt: stopped by the user.
        """
        entries = [one for some in self._entries(validated=True).values() for one in some]
        if not torch.cuda.is_available():
            for name in dict.fromkeys(one.study.name for one in entries if one.study.accelerator == "gpu"):
                print(f"{name}: passed over, it needs a GPU", flush=True)
            entries = [one for one in entries if one.study.accelerator == "cpu"]
        missing = [one for one in entries if not one.run]
        if self.nice:
            _give_way()
        try:
            failed = self._work(missing) if missing else []
        except KeyboardInterrupt:
            message = "interrupted; the current entries are dropped, and the next start trains them again"
            raise KeyboardInterrupt(message) from None
        for table in dict.fromkeys(one.table for one in entries if one.run):
            print(f"compare: {command('compare', table)}")
        if failed:
            raise RunError(f"failed: {', '.join(failed)}")

    def _work(self, missing: Sequence[Entry]) -> list[str]:
        places = environments(missing[0].recipe.trainer, self.jobs, len(missing), visible_gpus())
        if len(places) == 1:
            return work_through(missing, self.limit)
        most, count = self.limit, len(places)
        shares = [None if most is None else len(range(first, most, count)) for first in range(count)]
        with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
            tasks = [pool.submit(_worker, missing, *one) for one in zip(shares, places, strict=True)]
            try:
                return [name for task in tasks for name in task.result()]
            except KeyboardInterrupt:
                for process in multiprocessing.active_children():
                    process.terminate()
                raise

    def submit(self, options: str) -> None:
        """Submit `jobs` SLURM jobs that measure missing entries; `options` are those of `sbatch`."""
        names = [*self._entries(validated=True)]
        words = [*map(str, self.files), *(["--store", str(self.store)] if self.store else [])]
        words += [*(["--only", ",".join(self.only)] if self.only else [])]
        words += [*(["--limit", str(self.limit)] if self.limit else []), *(["--nice"] if self.nice else [])]
        job = sbatch(
            f"--job-name={names[0]}",
            f"--array=1-{self.jobs or 1}",
            "--ntasks=1",
            *shlex.split(options),
            f"--wrap={SRUN} {shlex.join([sys.executable, '-m', 'zoo', 'sweep', *words, '--jobs=1'])}",
        )
        print(f"job {job} has {self.jobs or 1} queues on {', '.join(names)}")

    def print_list(self) -> None:
        """Print how much of each study is done, and the missing entries with an estimate of their time."""
        for name, entries in self._entries().items():
            origins = [one.run.origin for one in entries if one.run]
            missing = [one for one in entries if not one.run]
            spent = [(one["encoding"], sum(one["seconds"].values())) for one in origins]
            line = f"{name}: {len(origins)} of {len(entries)} done"
            if missing and spent:
                own = [
                    [s for other, s in spent if other == one.encoding] or [s for _, s in spent]
                    for one in missing
                ]
                line += f", about {duration(sum(sum(some) / len(some) for some in own))} left"
            print(line)
            for seed in dict.fromkeys(one.seed for one in missing):
                names = [one.encoding for one in missing if one.seed == seed]
                none = len(names) == sum(one.seed == seed for one in entries)
                print(f"  seed {seed}: " + ("nothing yet" if none else f"missing: {', '.join(names)}"))

    def forget(self, name: str) -> None:
        """Remove a stored entry, such as `alibi_seed0`. Raises InputError where there is none."""
        entries = [one for some in self._entries().values() for one in some if one.name == name and one.run]
        if not entries:
            raise InputError(Problem("no stored entry has this name", where=f"--forget {name}"))
        for entry in entries:
            stored.remove(entry.table, entry.path)

    def _entries(self, validated: bool = False) -> dict[str, list[Entry]]:
        """The entries of each study, of the encodings in `only`."""
        found: dict[str, list[Entry]] = {}
        for file in self.files:
            study, tree = read_study(file)
            if validated:
                study.validate(tree)
            found[study.name] = study.entries(self.store or file.parent)
        every = {one.encoding for some in found.values() for one in some}
        if unknown := [name for name in self.only if name not in every]:
            raise InputError(
                Problem(f"no such encoding here; {hint(unknown[0], every)}", where=f"--only {unknown[0]}")
            )
        return {
            name: [one for one in some if one.encoding in (self.only or every)]
            for name, some in found.items()
        }


def _give_way() -> None:
    os.nice(19)
    # Linux shares the cores among sessions, and nice acts within one. A session that `setsid` has made is
    # the queue's alone; another one is the user's, whose other commands must not give way.
    group = Path("/proc/self/autogroup")
    if group.exists() and os.getsid(0) == os.getpid():
        group.write_text("19")


def _worker(entries: Sequence[Entry], limit: int | None, environment: Mapping[str, str]) -> list[str]:
    """`work_through` in a process of its own, which ends with its parent."""
    os.environ |= {PARENT: str(os.getppid()), **environment}
    exit_when_parent_dies()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return work_through(entries, limit)
    except KeyboardInterrupt:
        return []


def work_through(entries: Sequence[Entry], limit: int | None = None) -> list[str]:
    """Measure the missing entries, at most `limit` of them. Returns the names of those that failed."""
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
                run = measured(entry)
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


def measured(entry: Entry) -> RunInfo:
    """Train and evaluate an entry in a run folder, which is deleted in any case."""
    from zoo.training.fit import fit

    study, recipe = entry.study, entry.recipe
    folder = RUNS / "studies" / study.name / entry.name
    shutil.rmtree(folder, ignore_errors=True)  # what a killed queue has left
    torch.set_num_threads(study.threads)
    start = time.time()
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            fit(recipe, folder)
            plugins = [f"plugins={list(recipe.plugins)}"] if recipe.plugins else []
            for sets in study.after_training.get(entry.encoding, ()):
                _evaluate([folder], sets=[*plugins, *sets])
            if during := study.during:
                earlier = [kept_checkpoint(folder, step) for step in during.steps]
                _evaluate(earlier, during.lengths, during.protocols, plugins)
            measurements = read_measurements(folder)
            for reading in study.readings:
                measurements += _read_again(folder, reading, plugins)
        trained = (folder / LAST).stat().st_mtime
        run = run_info(folder)
        origin = {
            "study": study.name,
            "encoding": entry.encoding,
            "seed": entry.seed,
            "machine": machine(study),
            "seconds": {"training": round(trained - start, 1), "evaluation": round(time.time() - trained, 1)},
        }
        about = {"path": entry.path, "recipe": recipe.as_dict(), "origin": origin}
        return replace(run, measurements=tuple(map(rounded, measurements)), **about)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


def rounded(measurement: Measurement) -> Measurement:
    """With scores of six digits: the table of a study is a third as large."""

    def units(row: Row) -> Units | None:
        if not row.units or not row.units.scores:
            return row.units
        scores = [score and float(f"{score:.6g}") for score in row.units.scores]
        return row.units.model_copy(update={"scores": scores})

    rows = [row.model_copy(update={"units": units(row)}) if row.units else row for row in measurement.rows]
    return measurement.model_copy(update={"rows": rows})


def machine(study: Study) -> dict[str, Any]:
    gpu = {"gpu": torch.cuda.get_device_name()} if study.accelerator == "gpu" else {}
    return {"processor": processor(), **gpu, "threads": study.threads, "torch": torch.__version__}
