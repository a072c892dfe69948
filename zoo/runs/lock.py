"""One process at a time writes in a run folder."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from zoo.errors import InputError

LOCK = ".lock"
"""The file in a folder that is locked; it stays there."""
PATIENCE = 2.0
"""Seconds. A process that was killed a moment ago keeps its lock until its memory is given back."""


class RunLock:
    """Keeps every other process from writing in a run folder, until this one releases it or ends, however.

    A process that is forked meanwhile does not share the lock. Where locks do not work (some network file
    systems) nothing is locked.

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

    def release(self) -> None:
        """Let other processes write there again."""
        self._lock.release()
