"""One process at a time writes in a folder."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from zoo.errors import InputError

LOCK = ".lock"
"""The file in a folder that is locked; it stays there."""
PATIENCE = 2.0
"""Seconds. A process that was killed a moment ago keeps its lock until its memory is given back."""


def lock_run(folder: Path) -> FileLock | None:
    """Keep every other process from writing in a run folder, until this one unlocks it or ends, however.

    A process that is forked meanwhile does not share the lock. Where locks do not work (some network file
    systems) nothing is locked.

    Raises:
        InputError: another process has it, and still has it after some seconds.
    """
    # A soft lock, which is a file and nothing else, would outlive a kill.
    lock = FileLock(folder / LOCK, timeout=PATIENCE, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"{folder}: another process is at work on this run") from None
    except (NotImplementedError, OSError):
        return None
    return lock


def unlock(lock: FileLock | None) -> None:
    """Let other processes write there again. `lock` is what `lock_run` gave."""
    if lock is not None:
        lock.release()
