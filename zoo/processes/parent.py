"""A process that a launcher has started ends with it, whatever it does by then. Imports nothing heavy."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PAUSE = 0.2  # seconds between two looks
FIRST = "ZOO_FIRST_PROCESS"
"""Where the first process tells those that Lightning starts for it whose children they are."""
_NAME = "parent"


@contextmanager
def children_told() -> Iterator[None]:
    """Lightning gives the processes that it starts meanwhile this one's environment."""
    os.environ[FIRST] = str(os.getpid())
    try:
        yield
    finally:
        os.environ.pop(FIRST, None)


def leave_with_parent() -> None:
    """Have this process end as soon as its parent has, if it is one of several; once is enough.

    Called before anything that takes long. Lightning and torchrun start their processes in the place of their
    parent, and whoever kills that alone would leave them to wait for it for ever.
    """
    if not _has_launcher() or any(thread.name == _NAME for thread in threading.enumerate()):
        return
    # The parent may have gone before this process could ask who it is.
    parent = int(os.environ.pop(FIRST, None) or os.getppid())
    threading.Thread(target=_watch, args=(parent,), daemon=True, name=_NAME).start()


def _has_launcher() -> bool:
    local = os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0
    return int(local) > 0 or "TORCHELASTIC_RUN_ID" in os.environ


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PAUSE)
    os._exit(1)
