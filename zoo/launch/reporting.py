"""An error that all processes of a launch find is reported by the first of them only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from zoo.errors import InputError, RunError
from zoo.launch.ranks import find_launcher, is_first_process

SECONDS = 1.0
"""How long the others stay: torchrun and SLURM end all once one has left, before the first has reported."""


def quiet_exit(code: int) -> SystemExit:
    """The exception that ends a process without a report, after a short wait: another process reports."""
    time.sleep(SECONDS)
    return SystemExit(code)


@contextmanager
def report_once() -> Iterator[None]:
    """Around what all processes of a launch do before their rendezvous.

    Raises:
        InputError, RunError: in the first process, and in one that it has started: that error is another one,
            since the first process got further.
        SystemExit: instead of them in all others, with the exit code of the command line.
    """
    try:
        yield
    except (InputError, RunError) as error:
        launcher = find_launcher()
        if is_first_process() or launcher is None or launcher.name == "zoo":
            raise
        raise quiet_exit(2 if isinstance(error, InputError) else 1) from None
