"""Sweeps: the missing entries of studies, one after another or several at once, here or as SLURM jobs.

The entries of study files are rows of a table. A lock keeps two sweeps off the same entry, so several
processes, machines and SLURM jobs may share a table. The next start of a stopped sweep resumes the entry
that it was training. The entries of flags have run folders, and a comparison.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from zoo.comparison import stored
from zoo.console import command, duration
from zoo.errors import InputError, Problem, RunError, collect, hint
from zoo.files import atomic_write
from zoo.launch.slurm import SRUN, job_options, sbatch
from zoo.reports.compare import validate_out
from zoo.runs.folder import RUNS
from zoo.sweep.choice import choose, record
from zoo.sweep.flags import FlagStudy
from zoo.sweep.folder import KeptRun
from zoo.sweep.measure import give_way, work_through
from zoo.sweep.processes import Command, environments, note, run_all, visible_gpus
from zoo.sweep.study import Entry, read_study


@dataclass(frozen=True)
class TableSweep:
    """Study files, worked through in order.

    Attributes:
        files: of the studies.
        words: of the command line that repeats this sweep.
        store: the folder of the tables; by default that of each file.
        only: encodings; by default all.
        limit: the most entries to measure.
        jobs: processes; by default one for each visible GPU, and on a CPU one.
        nice: whether to give way to other processes.
        keep: whether to keep the run folders, in runs/studies/STUDY.
    """

    files: Sequence[Path]
    words: Sequence[str] = ()
    store: Path | None = None
    only: Sequence[str] = ()
    limit: int | None = None
    jobs: int | None = None
    nice: bool = False
    keep: bool = False

    def run(self) -> None:
        """Measure the missing entries.

        Raises:
            InputError: every problem of a study, before anything is measured.
            RunError: some entries failed; all others are done.
            KeyboardInterrupt: stopped by the user.
        """
        entries = self.entries(validated=True)
        if not torch.cuda.is_available():
            for name in dict.fromkeys(one.study.name for one in entries if one.study.accelerator == "gpu"):
                print(f"{name}: passed over, it needs a GPU", flush=True)
            entries = [one for one in entries if one.study.accelerator == "cpu"]
        missing = [one for one in entries if not one.is_finished]
        if self.nice:
            give_way()
        try:
            failed = self._work(missing) if missing else []
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted; the next start resumes the current entries") from None
        for table in dict.fromkeys(one.table for one in entries if one.is_finished):
            print(f"compare: {command('compare', table)}")
        if failed:
            raise RunError(f"failed: {', '.join(failed)}")

    def _work(self, missing: Sequence[Entry]) -> list[str]:
        most = min(self.limit or len(missing), len(missing))
        places = environments(missing[0].recipe.trainer, self.jobs, most, visible_gpus())
        if len(places) == 1:
            return work_through(missing, self.limit, self.keep)
        shares = [len(range(n, most, len(places))) for n in range(len(places))]
        words = [[*self.words, "--jobs=1", *([f"--limit={n}"] if self.limit else [])] for n in shares]
        return [*run_all([Command(f"job {n}", own) for n, own in enumerate(words, 1)], places)]

    def submit(self, options: str) -> None:
        """Submit `jobs` SLURM jobs that measure missing entries; `options` are those of `sbatch`."""
        names = list(dict.fromkeys(one.study.name for one in self.entries(validated=True)))
        commands = [Command("", [*self.words, "--jobs=1"])] * (self.jobs or 1)
        folder = RUNS / f"{names[0]}_sweep"
        job = submit(names[0], commands, folder, ["--ntasks=1"], options)
        print(f"job {job} has {len(commands)} sweeps of {', '.join(names)}; output in {folder}")

    def forget(self, name: str) -> None:
        """Remove a stored entry, such as `alibi_seed0`. Raises InputError where there is none."""
        entries = [one for one in self.entries() if one.name == name and one.is_finished]
        if not entries:
            raise InputError(Problem("no stored entry has this name", where=f"--forget {name}"))
        for entry in entries:
            stored.remove(entry.table, entry.path)

    def entries(self, validated: bool = False) -> list[Entry]:
        """The entries of the studies, of the encodings in `only`."""
        found: list[Entry] = []
        for file in self.files:
            study, tree = read_study(file)
            if validated:
                study.validate(tree)
            found += study.entries(self.store or file.parent)
        every = {one.encoding for one in found}
        if unknown := [name for name in self.only if name not in every]:
            raise InputError(
                Problem(f"no such encoding here; {hint(unknown[0], every)}", where=f"--only {unknown[0]}")
            )
        return [one for one in found if one.encoding in (self.only or every)]


@dataclass(frozen=True)
class FolderSweep:
    """A recipe with every encoding and every seed, and the comparison of their runs.

    With a grid, each encoding is trained with the best combination, and these runs are compared.

    Attributes:
        study: of the flags.
        words: of the command line that repeats this sweep.
        out: the folder of the runs' folders. Logs are in its `logs`, the comparison in its RECIPE_comparison.
        jobs: runs at the same time; by default one for each visible GPU, and on a CPU one.
        select_seeds: seeds that choose from the grid; by default the smallest number that is not among those
            of the study.
    """

    study: FlagStudy
    words: Sequence[str]
    out: Path = RUNS
    jobs: int | None = None
    select_seeds: Sequence[int] = ()

    def run(self, trains: bool = True) -> None:
        """Train the unfinished runs, or report them as failed, and compare the finished ones.

        With a grid, the runs that choose from it come first.

        Raises:
            InputError: every problem of every run, before anything is started; runs that cannot be compared.
            RunError: some run failed; all others are done.
            KeyboardInterrupt: stopped by the user; its text has the command that continues.
        """
        selection = self._selection()
        failed = self._train(selection, trains)
        tuned = choose(selection, failed)
        runs = self._reported(tuned)
        failed |= self._train(runs, trains)
        self._compare(runs, failed, tuned)

    def _train(self, runs: list[KeptRun], trains: bool) -> dict[str, str]:
        """The reason of each failed run."""
        unfinished = self._unfinished(runs)
        if not unfinished or not trains:
            return {run.name: "not finished" for run in unfinished}
        places = environments(runs[0].recipe.trainer, self.jobs, len(unfinished), visible_gpus())
        self._announce(runs, unfinished, f"{len(places)} at a time; ")
        try:
            return run_all([run.command for run in unfinished], places)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"interrupted; {sum(run.is_finished for run in runs)} of {len(runs)} runs are finished, the "
                f"others resume from their last checkpoints; continue: {command(*self.words)}"
            ) from None

    def submit(self, options: str) -> None:
        """Submit the unfinished runs to SLURM, and then the comparison.

        With a grid, the runs that choose come first, and a job after them submits the others.

        Args:
            options: of `sbatch`, for both jobs: partition, time, GPUs.

        Raises:
            RunError: `sbatch` is missing, or refuses; nothing is submitted then, or only the array.
        """
        runs, unfinished, tuned = self._stage()
        if not unfinished:
            self._compare(runs, {}, tuned)
            return
        selects = tuned is None
        # Without all losses nothing can be chosen.
        then, condition = (f"--slurm={options}", "afterok") if selects else ("--compare-only", "afterany")
        folder, name = self.out / f"{self.study.name}_sweep", self.study.name
        needed, commands = job_options(runs[0].recipe.trainer), [run.command for run in unfinished]
        first = submit(name, commands, folder, needed, options, self.jobs)
        second = sbatch(
            f"--job-name={name}_comparison",
            f"--output={folder}/comparison.out",
            f"--dependency={condition}:{first}",
            *shlex.split(options),
            f"--wrap={Command('', [*self.words, then]).line(sys.executable)}",
        )
        self._announce(runs, unfinished)
        after = "the choice and the other runs" if selects else "the comparison"
        print(
            f"job {first} has the runs, job {second} {after} after them; commands and output in "
            f"{folder}; the same command again submits the runs that are unfinished by then"
        )

    def print_commands(self) -> None:
        """Print the command of each unfinished run; run nothing."""
        runs, unfinished, tuned = self._stage()
        for run in runs:
            if run in unfinished:
                print(run.command.line(), flush=True)
            else:
                note(f"# {run.name}: finished")
        then = "--print-commands" if tuned is None else "--compare-only"
        note(f"# then: {command(*self.words, then)}")

    def _stage(self) -> tuple[list[KeptRun], list[KeptRun], dict[str, dict[str, Any]] | None]:
        """The runs that choose until all of them are finished, then those of the choice; the unfinished ones;
        and the choice."""
        selection = self._selection()
        if unfinished := self._unfinished(selection):
            return selection, unfinished, None
        tuned = choose(selection, ())
        runs = self._reported(tuned)
        return runs, self._unfinished(runs), tuned

    def _selection(self) -> list[KeptRun]:
        """The runs that choose from the grid; none without one."""
        own = self.study.seeds
        seeds = self.select_seeds or [next(seed for seed in itertools.count() if seed not in own)]
        return replace(self.study, seeds=list(seeds)).entries(self.out) if self.study.grid else []

    def _reported(self, tuned: Mapping[str, dict[str, Any]]) -> list[KeptRun]:
        runs = self.study.entries(self.out)
        chosen = {(encoding, one["chosen"]) for encoding, one in tuned.items()}
        return [run for run in runs if not run.setting or (run.encoding, run.setting) in chosen]

    def entries(self) -> list[KeptRun]:
        """The runs of the current stage."""
        return self._stage()[0]

    def _unfinished(self, runs: Sequence[KeptRun]) -> list[KeptRun]:
        """Raises InputError for every obstacle to any run, or to the comparison."""
        problems: list[Problem] = []
        unfinished = []
        if runs:
            with collect(problems):
                validate_out(self._comparison)
        for run in runs:
            with collect(problems):
                run.validate_folder()
                unfinished += [] if run.is_finished else [run]
        if problems:
            raise InputError(problems)
        if runs and not unfinished:
            note(f"all {_count(runs)} of {self.study.name} are finished already")
        return unfinished

    def _compare(
        self,
        runs: Sequence[KeptRun],
        failed: Mapping[str, str],
        tuned: Mapping[str, dict[str, Any]],
    ) -> None:
        """Compare the runs that have not failed. Raises RunError where some have, once that is done."""
        from zoo.reports.compare import compare

        if self.study.grid:
            record([run for run in self.study.entries(self.out) if run.name not in failed], tuned)
        every = {run.name: run for run in [*self._selection(), *runs]}
        lines = [f"{len(failed)} of {_count(every)} failed, and left out of the comparison:"]
        for name, why in failed.items():
            lines += [f"  {name}: {why}", f"    retry: {every[name].command.line()}"]
            lines += [f"    log: {log}"] if (log := every[name].command.log).is_file() else []
        lines.append(f"all unfinished runs are tried again by: {command(*self.words)}")
        try:
            if done := [run.folder for run in runs if run.name not in failed]:
                compare(done, out=self._comparison)
        except (InputError, RunError) as error:
            if not failed:
                raise
            lines.append(f"not compared: {error}")
        if failed:
            raise RunError("\n".join(lines))

    @property
    def _comparison(self) -> Path:
        return self.out / f"{self.study.name}_comparison"

    def _announce(self, runs: Sequence[KeptRun], unfinished: Sequence[KeptRun], how: str = "") -> None:
        done = f"{len(runs) - len(unfinished)} finished, {len(unfinished)} to do"
        logs = f"{how}logs in {self.out / 'logs'}"
        note(f"sweep of {self.study.name}: {_count(runs)} ({done}), {logs}")


def print_list(entries: Sequence[Entry]) -> None:
    """Print how much of each study is done, and the missing entries with an estimate of their time."""
    for name in dict.fromkeys(one.study.name for one in entries):
        own = [one for one in entries if one.study.name == name]
        done = [one for one in own if one.is_finished]
        missing = [one for one in own if one not in done]
        line = f"{name}: {len(done)} of {len(own)} done"
        if missing and (seconds := [one.seconds for one in done if one.seconds]):
            line += f", about {duration(sum(seconds) / len(seconds) * len(missing))} left"
        print(line)
        for seed in dict.fromkeys(one.seed for one in missing):
            names = [one.name.removesuffix(f"_seed{seed}") for one in missing if one.seed == seed]
            none = len(names) == sum(one.seed == seed for one in own)
            print(f"  seed {seed}: " + ("nothing yet" if none else f"missing: {', '.join(names)}"))


def submit(
    name: str,
    commands: Sequence[Command],
    folder: Path,
    needed: Sequence[str],
    options: str,
    at_once: int | None = None,
) -> str:
    """Submit an array job with a task for each command; returns its id.

    Args:
        folder: of the commands and the output.
        needed: options of `sbatch`, before those of the user in `options`.
        at_once: the most tasks at the same time.
    """
    lines = []
    for one in commands:
        log = f" >>{shlex.quote(str(one.log))} 2>&1" if one.log else ""
        lines.append(f"{one.line(sys.executable)}{log}\n")
        (one.log or folder / "log").parent.mkdir(parents=True, exist_ok=True)
    file = folder / "commands.txt"
    atomic_write(file, "".join(lines))
    return sbatch(
        f"--job-name={name}",
        f"--array=1-{len(commands)}" + (f"%{at_once}" if at_once else ""),
        f"--output={folder}/slurm-%A_%a.out",
        *needed,
        *shlex.split(options),
        f'--wrap=eval "{SRUN} $(sed -n "${{SLURM_ARRAY_TASK_ID}}p" {shlex.quote(str(file))})"',
    )


def _count(runs: Sized) -> str:
    return f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
