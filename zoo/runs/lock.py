"""One process at a time writes in a run folder, as long as the folder is there."""

from __future__ import annotations

import os
from pathlib import Path

from filelock import FileLock, Timeout

from zoo.errors import InputError, RunError

LOCK = ".lock"
"""The file in a folder that is locked; it stays there."""
PATIENCE = 2.0
"""Seconds. A process that was killed a moment ago keeps its lock until its memory is given back."""


class RunLock:
    """Keeps every other process from writing in a run folder, until this one releases it or ends, however.

    A process that is forked meanwhile does not share the lock. Where locks do not work (some network file
    systems) nothing is locked.

    What writes into a run makes the folders that it needs, so that a removed one would come back with a few
    files in it, and another of its name would get them: ask `is_gone` before.

    Raises:
        InputError: another process has it, and still has it after some seconds.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        # A soft lock, which is a file and nothing else, would outlive a kill.
        self._lock = FileLock(folder / LOCK, timeout=PATIENCE, thread_local=False, fallback_to_soft=False)
        try:
            self._lock.acquire()
        except Timeout:
            raise InputError(f"{folder}: another process is at work on this run") from None
        except (NotImplementedError, OSError):
            pass
        self._identity = _identity(folder)

    def release(self) -> None:
        """Let other processes write there again."""
        self._lock.release()

    def is_gone(self) -> bool:
        """Whether the folder was removed or moved, or another has its name; also after `release`."""
        try:
            return _identity(self.folder) != self._identity
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # a network file system that does not answer for now: the next write will fail

    def gone(self) -> RunError:
        """The error of a process whose folder is gone."""
        return RunError(f"{self.folder}: the run folder was removed or moved; nothing more can be saved")


def _identity(folder: Path) -> tuple[int, int]:
    found = os.stat(folder)
    return found.st_dev, found.st_ino
