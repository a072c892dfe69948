"""Every encoding with every seed: runs the unfinished runs, here or as a SLURM array, then compares all."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem, RunError
from zoo.files import atomic_write
from zoo.launch.devices import number_of_devices
from zoo.recipe import to_yaml_line
from zoo.reports.write import validate_out
from zoo.runs.folder import RUNS
from zoo.sweep.local import LocalSweep, environments, visible_gpus
from zoo.sweep.matrix import Run, matrix, note

SLURM_RUNS = """\
#!/bin/sh
#SBATCH --job-name={name}
#SBATCH --array=1-{count}{throttle}
#SBATCH --output={folder}/slurm-%A_%a.out
#SBATCH --nodes={nodes} --ntasks-per-node={tasks}
#SBATCH --requeue --open-mode=append --signal=SIGUSR1@180
{options}
eval "srun --kill-on-bad-exit=1 $(sed -n "${{SLURM_ARRAY_TASK_ID}}p" {folder}/commands.txt)"
"""
SLURM_COMPARISON = """\
#!/bin/sh
#SBATCH --job-name={name}_comparison
#SBATCH --output={folder}/comparison.out
{options}
{command}
"""


@dataclass(frozen=True)
class Sweep:
    """One recipe with every encoding and every seed.

    Attributes:
        recipe: the file.
        encodings: as a recipe has them.
        seeds: of initial weights, data order and dropout.
        sets: `key=value` texts laid over the recipe, for all runs.
        out: the folder in which the runs' folders lie. Their logs are in its `logs`, the comparison in its
            RECIPE_comparison.
        jobs: runs that go at the same time; by default one for each visible GPU, and on a CPU one.
    """

    recipe: Path
    encodings: Sequence[Any]
    seeds: Sequence[int] = (0,)
    sets: Sequence[str] = ()
    out: Path = RUNS
    jobs: int | None = None

    def run(self) -> None:
        """Train what is not finished, then compare.

        Raises:
            InputError: every problem of every run, before anything is started; runs that cannot be compared.
            RunError: some run failed; all others are done.
            KeyboardInterrupt: stopped by the user; its text has the command that continues.
        """
        name, runs, todo = self._plan()
        finished, failed = [run for run in runs if run not in todo], {}
        if todo:
            where = environments(runs[0].recipe.trainer, self.jobs, len(todo), visible_gpus())
            self._announce(name, runs, todo, f"{len(where)} at a time; ")
            outcome = LocalSweep(todo, where).run()
            finished += outcome.finished
            failed = outcome.failed
            if outcome.interrupted:
                raise KeyboardInterrupt(
                    f"interrupted; {len(finished)} of {len(runs)} runs are finished, the others go on from "
                    f"their last checkpoints; continue: {shlex.join(self.command())}"
                )
        else:
            note(f"all {_count(runs)} of {name} are finished already")
        self._compare(name, runs, finished, failed)

    def compare(self) -> None:
        """Train nothing: compare the runs that are finished, and report the others as failed."""
        name, runs, todo = self._plan()
        failed = {run.name: "not finished" for run in todo}
        self._compare(name, runs, [run for run in runs if run not in todo], failed)

    def submit(self, options: str) -> None:
        """Submit what is not finished to SLURM, and then the comparison.

        Args:
            options: of `sbatch`, for both jobs: partition, time, GPUs.

        Raises:
            RunError: `sbatch` is missing, or refuses; nothing is submitted then, or only the array.
        """
        name, runs, todo = self._plan()
        if not todo:
            note(f"all {_count(runs)} of {name} are finished already")
            self._compare(name, runs, runs, {})
            return
        folder, trainer = self.out / f"{name}_sweep", runs[0].recipe.trainer
        log_folder = todo[0].log.parent
        log_folder.mkdir(parents=True, exist_ok=True)
        commands = [
            f"{shlex.join(run.command(sys.executable))} >>{shlex.quote(str(run.log))} 2>&1\n" for run in todo
        ]
        atomic_write(folder / "commands.txt", "".join(commands))
        both = {
            "name": name,
            "folder": shlex.quote(str(folder)),
            "options": "\n".join(f"#SBATCH {option}" for option in shlex.split(options)),
        }
        array = SLURM_RUNS.format(
            count=len(todo),
            throttle=f"%{self.jobs}" if self.jobs else "",
            nodes=trainer.num_nodes,
            tasks=number_of_devices(trainer.devices) or 1,
            **both,
        )
        compare = shlex.join([*self.command(sys.executable), "--compare-only"])
        atomic_write(folder / "runs.sh", array)
        atomic_write(folder / "comparison.sh", SLURM_COMPARISON.format(command=compare, **both))
        first = _sbatch(folder / "runs.sh")
        second = _sbatch(folder / "comparison.sh", f"--dependency=afterany:{first}")
        self._announce(name, runs, todo)
        print(
            f"job {first} has the runs, job {second} the comparison after them; scripts in {folder}; "
            f"the same command again submits what is not finished by then"
        )

    def print_commands(self) -> None:
        """Print the command of each run that is not finished; run nothing."""
        _, runs, todo = self._plan()
        for run in runs:
            if run in todo:
                print(run.command_line(), flush=True)
            else:
                note(f"# {run.name}: finished")
        note(f"# then: {shlex.join([*self.command(), '--compare-only'])}")

    def command(self, python: str = "python") -> list[str]:
        """This sweep as a command."""
        command = [python, "-m", "zoo", "sweep", str(self.recipe)]
        command += ["--encodings", to_yaml_line(list(self.encodings))[1:-1]]
        command += ["--seeds", ",".join(map(str, self.seeds))]
        command += [part for text in self.sets for part in ("--set", text)]
        return [*command, "--out", str(self.out), *(["--jobs", str(self.jobs)] if self.jobs else [])]

    def _plan(self) -> tuple[str, list[Run], list[Run]]:
        """The name of the sweep, its runs, and those that are not finished. Raises InputError with everything
        that is in the way of any run, or of the comparison."""
        name, runs = matrix(self.recipe, self.encodings, self.seeds, self.sets, self.out)
        todo: list[Run] = []
        problems: list[Problem] = []
        try:
            validate_out(self._comparison(name))
        except InputError as error:
            problems += error.problems
        for run in runs:
            try:
                run.check_folder()
                if not run.is_finished():
                    todo.append(run)
            except InputError as error:
                problems += error.problems
        if problems:
            raise InputError(problems)
        return name, runs, todo

    def _compare(
        self, name: str, runs: Sequence[Run], finished: Sequence[Run], failed: dict[str, str]
    ) -> None:
        """Compare the finished runs. Raises RunError where some have failed, once that is done."""
        not_compared: InputError | RunError | None = None
        if finished:
            from zoo.reports.compare import compare

            folders = [run.folder for run in runs if run in finished]
            try:
                compare(folders, out=self._comparison(name))
            except (InputError, RunError) as error:
                not_compared = error
        if not failed:
            if not_compared:
                raise not_compared
            return
        lines = [f"{len(failed)} of {_count(runs)} failed, and left out of the comparison:"]
        for run in runs:
            if run.name in failed:
                lines.append(f"  {run.name}: {failed[run.name]}")
                lines += [f"    log: {run.log}"] if run.log.is_file() else []
                lines.append(f"    retry: {run.command_line()}")
        lines.append(f"all that is not finished is tried again by: {shlex.join(self.command())}")
        lines += [f"not compared: {not_compared}"] if not_compared else []
        raise RunError("\n".join(lines))

    def _comparison(self, name: str) -> Path:
        return self.out / f"{name}_comparison"

    def _announce(self, name: str, runs: Sequence[Run], todo: Sequence[Run], how: str = "") -> None:
        labels = ", ".join(dict.fromkeys(run.label for run in runs))
        seeds = ", ".join(dict.fromkeys(str(run.seed) for run in runs))
        done = f"{len(runs) - len(todo)} finished, {len(todo)} to do"
        logs = f"{how}logs in {todo[0].log.parent}"
        note(f"sweep of {name}: {labels}; seeds {seeds}: {_count(runs)} ({done}), {logs}")


def _sbatch(script: Path, *options: str) -> str:
    """Submit a script; returns the id of the job."""
    command = ["sbatch", "--parsable", *options, str(script)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"sbatch cannot be run ({error}); the script is {script}") from error
    if done.returncode:
        raise RunError(f"{shlex.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip().partition(";")[0]  # the name of the cluster may follow


def _count(runs: Sequence[Run]) -> str:
    return f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
