"""Runs commands in forked processes, which wait for no imports, and halts them at a chosen place.

Started by `killed_runs.Forks`. It has imported all of the zoo and never trains; for a line of JSON on its
stdin it forks a process, which leads a process group, and in which `zoo` then runs.

{"start": [argument, ...], "folder": ..., "log": ..., "environment": {...}, "group": a process id or 0,
 "halt": [where, step] or null, "patch": a Python file or null}
    answers with the process id
{"wait": pid}
    answers with the exit code once it has ended, negative for a signal

Where a process halts it writes a file NAME.halted beside its log, and sleeps until there is something in it.
"""

import faulthandler
import json
import os
import runpy
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import datasets  # noqa: F401, a second that each process would take
import plotly.subplots  # noqa: F401, as this
import torch

import zoo.data.text.cache
import zoo.training.finish
import zoo.training.fit
from zoo import cli, registry
from zoo.training.module import TaskModule

LIMIT = 300
"""Seconds after which a process that hangs ends with the stack of each thread."""


def halts(where, step, mark):
    """Have this process halt within `where` (of step `step`, from 0, as far as that is known), once."""
    reached = [0]

    def halt():
        if not Path(mark).exists():
            Path(mark).touch()
            while not Path(mark).stat().st_size:
                time.sleep(0.02)

    def here(owner, name, at):
        real = getattr(owner, name)

        def halting(*given, **named):
            if at(*given, **named):
                halt()
            return real(*given, **named)

        setattr(owner, name, halting)

    def of_step(task, *given):
        reached[0] = task.global_step
        return task.global_step >= step

    def writing(name):
        def at(*given):
            path = os.readlink(f"/proc/self/fd/{given[0]}") if isinstance(given[0], int) else str(given[0])
            return Path(path).name.startswith(f".{name}.") and reached[0] + 1 >= step

        return at

    if where == "step":
        here(TaskModule, "training_step", of_step)
        return
    if where == "validation":
        here(TaskModule, "validation_step", lambda task, batch, index: of_step(task) and index > 0)
        return
    here(TaskModule, "training_step", lambda task, *given: of_step(task) and False)
    if where == "update":
        here(torch.optim.AdamW, "step", lambda *given, **named: reached[0] >= step)
    elif where == "tokenizer":
        here(zoo.data.text.cache, "train_tokenizer", lambda *given: True)
    elif where == "evaluation":
        here(zoo.training.finish, "evaluate_run", lambda *given, **named: True)
    else:
        what, name = where.split()
        here(os, what, writing(name))


def run(order):
    os.chdir(order["folder"])
    os.environ.update(order["environment"])
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    if order["halt"]:
        halts(*order["halt"], order["log"] + ".halted")
    if order["patch"]:
        runpy.run_path(order["patch"])
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(LIMIT, exit=True)  # into the log, which the test then shows
    return cli.main(order["start"])


def main():
    for kind in registry.KINDS.values():
        kind.all()  # imports them
    codes = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            pid = order["wait"]
            codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            answer = codes[pid]
        else:
            answer = os.fork()
            with suppress(OSError):  # by both, so that it is done whoever comes first
                os.setpgid(answer, order["group"])
            if not answer:
                code = 1
                try:
                    code = run(order)
                except SystemExit as ending:
                    code = ending.code or 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    os._exit(code)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
