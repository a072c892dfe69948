"""Every encoding with every seed: runs the unfinished runs, here or as a SLURM array, then compares all."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.console import duration
from zoo.errors import InputError, Problem, RunError, collect
from zoo.files import atomic_write
from zoo.launch.devices import cpu_cores
from zoo.launch.ranks import PARENT
from zoo.launch.slurm import SRUN, job_options, sbatch
from zoo.recipe import to_yaml_line
from zoo.recipe.trainer import TrainerConfig
from zoo.reports.compare import validate_out
from zoo.runs.folder import RUNS
from zoo.sweep.choice import choose, record
from zoo.sweep.grid import Grid
from zoo.sweep.plan import PlannedRun, plan

VISIBLE, THREADS = "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Sweep:
    """One recipe with every encoding and every seed.

    Attributes:
        recipe: the file.
        encodings: as a recipe has them.
        seeds: of initial weights, data order and dropout.
        sets: `key=value` texts laid over the recipe, for all runs.
        out: the folder of the runs' folders. Logs are in its `logs`, the comparison in its RECIPE_comparison.
        jobs: runs at the same time; by default one for each visible GPU, and on a CPU one.
        grid: values of keys; each encoding is trained with the best combination, and these runs are compared.
        select_seeds: seeds that choose from the grid; by default the smallest number that is not in `seeds`.
    """

    recipe: Path
    encodings: Sequence[Any]
    seeds: Sequence[int] = (0,)
    sets: Sequence[str] = ()
    out: Path = RUNS
    jobs: int | None = None
    grid: Grid = field(default_factory=dict)
    select_seeds: Sequence[int] = ()

    def run(self) -> None:
        """Train the unfinished runs, then compare all.

        Raises:
            InputError: every problem of every run, before anything is started; runs that cannot be compared.
            RunError: some run failed; all others are done.
            KeyboardInterrupt: stopped by the user; its text has the command that continues.
        """
        self._run(self._train)

    def compare(self) -> None:
        """Train nothing: compare the runs that are finished, and report the others as failed."""
        self._run(lambda name, runs, todo: {run.name: "not finished" for run in todo})

    def _run(self, train: Callable[[str, list[PlannedRun], list[PlannedRun]], dict[str, str]]) -> None:
        """Choose from the grid, and compare the runs of the choice.

        Args:
            train: trains the unfinished of some runs, and returns the reason of each failed one.
        """
        selection: list[PlannedRun] = []
        failed: dict[str, str] = {}
        if self.grid:
            name, selection, todo = self._plan(self._selecting())
            failed = train(name, selection, todo)
        tuned = self._choose(selection, failed)
        name, runs, todo = self._plan(self.seeds, tuned)
        failed |= train(name, runs, todo)
        self._compare(name, runs, failed, tuned, [run for run in selection if run not in runs])

    def _train(self, name: str, runs: list[PlannedRun], todo: list[PlannedRun]) -> dict[str, str]:
        """Train the unfinished runs as processes; returns the reason of each failed one."""
        if not todo:
            return {}
        places = environments(runs[0].recipe.trainer, self.jobs, len(todo), visible_gpus())
        self._announce(name, runs, todo, f"{len(places)} at a time; ")
        processes = _Processes(todo, places)
        try:
            return processes.run()
        except KeyboardInterrupt:
            finished = len(runs) - len(todo) + len(processes.finished)
            raise KeyboardInterrupt(
                f"interrupted; {finished} of {len(runs)} runs are finished, the others resume from "
                f"their last checkpoints; continue: {shlex.join(self.command())}"
            ) from None

    def submit(self, options: str) -> None:
        """Submit the unfinished runs to SLURM, and then the comparison.

        With a grid, the runs that choose come first, and a job after them submits the others.

        Args:
            options: of `sbatch`, for both jobs: partition, time, GPUs.

        Raises:
            RunError: `sbatch` is missing, or refuses; nothing is submitted then, or only the array.
        """
        name, runs, todo, tuned = self._unfinished()
        if not todo:
            self._compare(name, runs, {}, tuned)
            return
        # Without all losses nothing can be chosen.
        selects = bool(self.grid) and not tuned
        then, condition = ("--compare-only", "afterany") if not selects else (f"--slurm={options}", "afterok")
        folder, needed = self.out / f"{name}_sweep", job_options(runs[0].recipe.trainer)
        commands = folder / "commands.txt"
        lines = [
            f"{shlex.join(run.command(sys.executable))} >>{shlex.quote(str(run.log))} 2>&1\n" for run in todo
        ]
        todo[0].log.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(commands, "".join(lines))
        first = sbatch(
            f"--job-name={name}",
            f"--array=1-{len(todo)}" + (f"%{self.jobs}" if self.jobs else ""),
            f"--output={folder}/slurm-%A_%a.out",
            *needed,
            *shlex.split(options),
            f'--wrap=eval "{SRUN} $(sed -n "${{SLURM_ARRAY_TASK_ID}}p" {shlex.quote(str(commands))})"',
        )
        second = sbatch(
            f"--job-name={name}_comparison",
            f"--output={folder}/comparison.out",
            f"--dependency={condition}:{first}",
            *shlex.split(options),
            f"--wrap={shlex.join([*self.command(sys.executable), then])}",
        )
        self._announce(name, runs, todo)
        after = "the choice and the other runs" if selects else "the comparison"
        print(
            f"job {first} has the runs, job {second} {after} after them; commands and output in "
            f"{folder}; the same command again submits the runs that are unfinished by then"
        )

    def print_commands(self) -> None:
        """Print the command of each unfinished run; run nothing."""
        _, runs, todo, tuned = self._unfinished()
        for run in runs:
            if run in todo:
                print(run.command_line(), flush=True)
            else:
                _note(f"# {run.name}: finished")
        then = "--print-commands" if self.grid and not tuned else "--compare-only"
        _note(f"# then: {shlex.join([*self.command(), then])}")

    def command(self, python: str = "python") -> list[str]:
        """This sweep as a command."""
        command = [python, "-m", "zoo", "sweep", str(self.recipe)]
        command += ["--encodings", to_yaml_line(list(self.encodings))[1:-1]]
        command += ["--seeds", ",".join(map(str, self.seeds))]
        command += [part for text in self.sets for part in ("--set", text)]
        for key, values in self.grid.items():
            command += ["--grid", f"{key}={to_yaml_line(list(values))[1:-1]}"]
        command += ["--select-seeds", ",".join(map(str, self._selecting()))] if self.grid else []
        return [*command, "--out", str(self.out), *(["--jobs", str(self.jobs)] if self.jobs else [])]

    def _selecting(self) -> Sequence[int]:
        """The seeds that choose from the grid."""
        return self.select_seeds or [next(seed for seed in itertools.count() if seed not in self.seeds)]

    def _choose(self, selection: Sequence[PlannedRun], failed: Collection[str]) -> dict[str, dict[str, Any]]:
        tuned, lines = choose(selection, self.grid, failed)
        if lines:
            _note("\n".join(lines))
        return tuned

    def _unfinished(self) -> tuple[str, list[PlannedRun], list[PlannedRun], dict[str, dict[str, Any]]]:
        """As `_plan`, of the runs that choose as long as one of these is unfinished; and the choice."""
        tuned: dict[str, dict[str, Any]] = {}
        if self.grid:
            name, selection, todo = self._plan(self._selecting())
            if todo:
                return name, selection, todo, tuned
            tuned = self._choose(selection, ())
        return *self._plan(self.seeds, tuned), tuned

    def _plan(
        self, seeds: Sequence[int], tuned: Mapping[str, dict[str, Any]] | None = None
    ) -> tuple[str, list[PlannedRun], list[PlannedRun]]:
        """The name of the sweep, its runs, and the unfinished ones.

        Args:
            tuned: the choice from the grid, for each encoding; by default the whole grid.

        Raises:
            InputError: every obstacle to any run, or to the comparison.
        """
        name, runs = plan(self.recipe, self.encodings, seeds, self.sets, self.out, self.grid)
        if self.grid and tuned is not None:
            runs = [one for one in runs if tuned.get(one.encoding, {}).get("chosen") == one.point]
        todo: list[PlannedRun] = []
        problems: list[Problem] = []
        with collect(problems):
            validate_out(self._comparison(name))
        for run in runs:
            with collect(problems):
                run.check_folder()
                if not run.is_finished():
                    todo.append(run)
        if problems:
            raise InputError(problems)
        if runs and not todo:
            _note(f"all {_count(runs)} of {name} are finished already")
        return name, runs, todo

    def _compare(
        self,
        name: str,
        runs: Sequence[PlannedRun],
        failed: Mapping[str, str],
        tuned: Mapping[str, dict[str, Any]],
        selection: Sequence[PlannedRun] = (),
    ) -> None:
        """Compare the runs that have not failed. Raises RunError where some have, once that is done."""
        not_compared: InputError | RunError | None = None
        done = [run for run in runs if run.name not in failed]
        if self.grid:
            every = plan(self.recipe, self.encodings, self.seeds, self.sets, self.out, self.grid)[1]
            record([run for run in every if run.name not in failed], tuned)
        if done:
            from zoo.reports.compare import compare

            try:
                compare([run.folder for run in done], out=self._comparison(name))
            except (InputError, RunError) as error:
                not_compared = error
        if not failed:
            if not_compared:
                raise not_compared
            return
        every = [*selection, *runs]
        lines = [f"{len(failed)} of {_count(every)} failed, and left out of the comparison:"]
        for run in every:
            if run.name in failed:
                lines.append(f"  {run.name}: {failed[run.name]}")
                lines += [f"    log: {run.log}"] if run.log.is_file() else []
                lines.append(f"    retry: {run.command_line()}")
        lines.append(f"all unfinished runs are tried again by: {shlex.join(self.command())}")
        lines += [f"not compared: {not_compared}"] if not_compared else []
        raise RunError("\n".join(lines))

    def _comparison(self, name: str) -> Path:
        return self.out / f"{name}_comparison"

    def _announce(
        self, name: str, runs: Sequence[PlannedRun], todo: Sequence[PlannedRun], how: str = ""
    ) -> None:
        labels = ", ".join(dict.fromkeys(run.label for run in runs))
        seeds = ", ".join(dict.fromkeys(str(run.seed) for run in runs))
        done = f"{len(runs) - len(todo)} finished, {len(todo)} to do"
        logs = f"{how}logs in {todo[0].log.parent}"
        _note(f"sweep of {name}: {labels}; seeds {seeds}: {_count(runs)} ({done}), {logs}")


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get(VISIBLE, ",".join(map(str, range(count))))
    return [name.strip() for name in named.split(",")][:count]


def environments(
    trainer: TrainerConfig, jobs: int | None, most: int, gpus: Sequence[str]
) -> list[dict[str, str]]:
    """The environment variables of each of the concurrent runs: its own GPUs, or its share of the CPU cores.

    Args:
        trainer: that of the recipe. Runs of several GPUs each get as many of their own.
        jobs: concurrent runs; by default as many as the GPUs are enough for, and on a CPU one.
        most: number of runs.
    """
    each = 0  # a list names GPUs by their number, which another choice of visible ones would change
    if trainer.accelerator in ("auto", "gpu", "cuda"):
        several = trainer.num_nodes == 1 and isinstance(trainer.devices, int) and trainer.devices > 0
        each = trainer.devices if several else int(trainer.devices in ("auto", "1", "-1", -1))
    groups = [gpus[i : i + each] for i in range(0, len(gpus) - each + 1, each)] if each else []
    count = max(1, min(jobs or len(groups), most))
    made = [{VISIBLE: ",".join(groups[i % len(groups)])} if groups else {} for i in range(count)]
    if count > 1 and THREADS not in os.environ:
        made = [{**one, THREADS: str(max(1, cpu_cores() // count))} for one in made]
    return made


class _Processes:
    """The runs as processes of this machine: at most one in each of `environments` at a time."""

    def __init__(self, runs: Sequence[PlannedRun], environments: Sequence[Mapping[str, str]]):
        self.waiting, self.free = deque(runs), deque(environments)
        self.going: dict[subprocess.Popen, tuple[PlannedRun, Mapping[str, str], float]] = {}
        """Run, environment and start of each process."""
        self.finished: list[str] = []
        self.failed: dict[str, str] = {}
        self.total, self.started = len(runs), time.monotonic()

    def run(self) -> dict[str, str]:
        """Run all; returns the reason of each failed run.

        Raises:
            KeyboardInterrupt: after the first Ctrl-C, when every run has saved; a second one kills them.
        """
        try:
            while self.going or self.waiting:
                while self.free and self.waiting:
                    self._start(self.waiting.popleft())
                self._report_ended()
                time.sleep(0.05)
        except KeyboardInterrupt:
            _note("stopping: each run finishes its step and saves; once more to kill")
            raise
        finally:
            for number in (signal.SIGINT, signal.SIGKILL):
                for process in self.going:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, number)
                with suppress(KeyboardInterrupt):
                    for process in self.going:
                        process.wait()
        return self.failed

    def _start(self, run: PlannedRun) -> None:
        run.log.parent.mkdir(parents=True, exist_ok=True)
        environment = self.free.popleft()
        with run.log.open("ab") as log:
            log.write(f"$ {run.command_line()}\n".encode(errors="surrogateescape"))
            log.flush()
            process = subprocess.Popen(
                run.command(sys.executable),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, PARENT: str(os.getpid()), **environment},
                # A group of its own: Ctrl-C in the terminal reaches the sweep alone, which signals all
                # processes of every run.
                start_new_session=True,
            )  # fmt: skip
        self.going[process] = run, environment, time.monotonic()

    def _report_ended(self) -> None:
        for process in [one for one in self.going if one.poll() is not None]:
            run, environment, started = self.going.pop(process)
            self.free.append(environment)
            name, code = run.name, process.returncode
            if code == 0:
                self.finished.append(name)
                text = f"{name}: finished in {duration(time.monotonic() - started)}"
            else:
                why = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
                memory = ": out of memory?" if code == -signal.SIGKILL else ""
                self.failed[name] = f"{why}{memory}: {_last_line(run.log)}"
                text = f"{name}: FAILED: {self.failed[name]}; log: {run.log}"
            done = len(self.finished) + len(self.failed)
            left = (time.monotonic() - self.started) / done * (self.total - done)
            _note(f"[{done}/{self.total}] {text}" + (f"; about {duration(left)} left" if left else ""))


def _last_line(log: Path) -> str:
    """The last line of a log; of a traceback the error, before its notes."""
    text = log.read_text(errors="replace").rpartition("\n$ ")[2]
    _, traceback, end = text.rpartition("Traceback (most recent call last):")
    lines = [line for line in end.splitlines() if line.strip() and not (traceback and line.startswith(" "))]
    return lines[0 if traceback else -1].strip() if lines else ""


def _note(text: str) -> None:
    """Print progress on stderr: stdout has the results."""
    print(text, file=sys.stderr, flush=True)


def _count(runs: Sequence[PlannedRun]) -> str:
    return f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
