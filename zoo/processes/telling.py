"""What processes that were started together all find is told by the first of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from zoo.errors import InputError, RunError
from zoo.processes.launch import is_first_process, launch

SECONDS = 1.0
"""How long the others stay: torchrun and SLURM end all once one has left, and by then it must be told."""


def silent(code: int) -> SystemExit:
    """What a process ends with, after a while, that leaves the telling to another; `code`: its exit code."""
    time.sleep(SECONDS)
    return SystemExit(code)


@contextmanager
def told_once() -> Iterator[None]:
    """Around what all processes of a launch do alike, before they have met.

    Raises:
        InputError, RunError: in the first process, and in one that Lightning started: by then the first has
            done the same without an error.
        SystemExit: in place of them in all others, with the command line's exit code.
    """
    try:
        yield
    except (InputError, RunError) as error:
        if is_first_process() or (launch() or ("lightning",))[0] == "lightning":
            raise
        raise silent(2 if isinstance(error, InputError) else 1) from None
