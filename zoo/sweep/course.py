"""One go through the runs that are not finished: started, watched, stopped on demand, and told."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zoo.errors import InputError
from zoo.sweep.command import as_text, fit_command
from zoo.sweep.matrix import Run
from zoo.sweep.pool import Asked, Elsewhere, Job, Pool, claim_log, is_elsewhere, stop_signals
from zoo.sweep.report import Report, duration, how_it_ended
from zoo.sweep.standing import Standing, State, remove_empty, standing

LOGS = "logs"
STOPPING = (
    "stopping: each run finishes its step and saves; once more to stop at once",
    "stopping at once; once more to kill",
    "killed",
)


@dataclass
class Failure:
    """Why a run is not finished, and where to look."""

    run: Run
    why: str


@dataclass
class Outcome:
    """What has become of the runs."""

    finished: list[Run]
    failed: list[Failure] = field(default_factory=list)

    def told(self, total: int, again: str) -> str:
        """What is not finished, and what to do about it."""
        lines = [f"{len(self.failed)} of {count_of_runs(total)} failed, and left out of the comparison:"]
        for failure in self.failed:
            run = failure.run
            lines.append(f"  {run.name}: {failure.why}")
            if log_of(run).is_file():
                lines.append(f"    log: {log_of(run)}")
            try:
                state = standing(run.folder, run.recipe).state
            except InputError:
                continue
            if state is not State.EMPTY:
                lines.append(f"    retry: {as_text(fit_command(run, state))}")
        return "\n".join([*lines, f"all that is not finished is tried again by: {again}"])


class Course:
    """One go through all runs that are not finished."""

    def __init__(self, todo: Sequence[Run], pool: Pool, outcome: Outcome):
        self.todo, self.pool, self.outcome = list(todo), pool, outcome
        self.elsewhere: list[Run] = []
        self.report = Report(len(todo))

    def run(self) -> bool:
        """Run all; whether the user has stopped it."""
        with stop_signals() as asked:
            told = 0
            try:
                while self.pool.jobs or ((self.todo or self.elsewhere) and not asked.times):
                    told = self._obey(asked, told)
                    if not self.todo:
                        self._take_back()
                    if self.pool.free and self.todo and not asked.times:
                        self._start(self.todo.pop(0))
                    for job in self.pool.ended():
                        self._settle(job, bool(asked.times))
                    time.sleep(0.05)
            finally:
                self.pool.end()
                self.report.close()
        return bool(asked.times)

    def _obey(self, asked: Asked, told: int) -> int:
        for times in range(told, asked.times):
            self.report.say(STOPPING[min(times, 2)])
            self.pool.tell(signal.SIGINT if times < 2 else signal.SIGKILL)
        return asked.times

    def _start(self, run: Run) -> None:
        try:
            log = claim_log(log_of(run))
        except Elsewhere:
            if run not in self.elsewhere:
                self.report.say(
                    f"{run.name}: another sweep is at it; looked at again when the others are done"
                )
                self.elsewhere.append(run)
            return
        try:
            # Hours may have passed, and another sweep have been here.
            if run.resolve() != run.recipe:
                raise InputError("the recipe is not what it was when the sweep began")
            state = standing(run.folder, run.recipe).state
            if state is State.FINISHED:
                self.outcome.finished.append(run)
                self.report.ended(f"{run.name}: finished by another sweep")
                log.close()
                return
            if state is State.EMPTY:
                remove_empty(run.folder)
                self.report.say(f"{run.folder}: removed, it had stopped before its first checkpoint")
                state = State.NEW
            self.pool.start(run, fit_command(run, state), log)
            self.report.running(job.run.name for job in self.pool.jobs)
        except (InputError, OSError) as error:
            log.close()
            self._failed(run, str(error))

    def _take_back(self) -> None:
        """Look again at the runs that another sweep was at, once it is not any more, however it ended."""
        self.todo = [run for run in self.elsewhere if not is_elsewhere(log_of(run))]
        self.elsewhere = [run for run in self.elsewhere if run not in self.todo]

    def _settle(self, job: Job, stopping: bool) -> None:
        self.report.running(job.run.name for job in self.pool.jobs)
        run, code = job.run, job.process.returncode
        try:
            now = standing(run.folder, run.recipe)
        except InputError as error:
            self._failed(run, str(error))
            return
        # What it was to evaluate, `fit` knows best.
        if code == 0 and now.state in (State.FINISHED, State.TRAINED):
            self.outcome.finished.append(run)
            self.report.ended(f"{run.name}: finished in {duration(job.seconds)}")
        elif stopping:
            self.report.say(f"{run.name}: stopped; {_stands(now, run)}")
        elif code == 0:
            self._failed(run, f"it ended by itself, {_stands(now, run)}")
        else:
            last = job.last_line()
            self._failed(run, f"{how_it_ended(code)}, {_stands(now, run)}" + (f": {last}" if last else ""))

    def _failed(self, run: Run, why: str) -> None:
        self.outcome.failed.append(Failure(run, why))
        self.report.ended(f"{run.name}: FAILED: {why}; log: {log_of(run)}")


def _stands(now: Standing, run: Run) -> str:
    if now.state in (State.UNFINISHED, State.TRAINED):
        return f"saved at step {now.steps} of {run.recipe.trainer.max_steps}"
    return "nothing saved"


def count_of_runs(count: int) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} run{'' if count == 1 else 's'}"


def log_of(run: Run) -> Path:
    """Where a run's process writes what it prints."""
    return run.folder.parent / LOGS / f"{run.name}.log"
