"""End a process when the one that started it ends. Imports nothing heavy."""

from __future__ import annotations

import os
import threading
import time

PAUSE = 0.2  # seconds between two looks
PARENT = "ZOO_PARENT"
"""The environment variable that has the process id of whoever started this process."""
_THREAD = "exit-when-parent-dies"


def exit_when_parent_dies() -> None:
    """End this process as soon as the one that started it has ended, whatever it is doing then.

    Does nothing in a process that the user has started, and once is enough. Call it before anything slow: a
    process whose parent was killed alone would wait for it in a collective without end.
    """
    if not _has_parent() or any(thread.name == _THREAD for thread in threading.enumerate()):
        return
    # The parent may be gone before this process could ask who it is.
    parent = int(os.environ.pop(PARENT, None) or os.getppid())
    threading.Thread(target=_watch, args=(parent,), daemon=True, name=_THREAD).start()


def _has_parent() -> bool:
    local_rank = int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0)
    return PARENT in os.environ or local_rank > 0 or "TORCHELASTIC_RUN_ID" in os.environ


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PAUSE)
    os._exit(1)
