"""One process at a time is at work in a run folder."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from zoo.errors import InputError

# A process that was killed a moment ago keeps what it held until its memory is given back.
PATIENCE = 2.0  # seconds
_HELD: set[int] = set()


def lock_run(folder: Path, must: bool = False) -> int | None:
    """Keep every other process from training in a run folder, until this one lets go or ends, however.

    Args:
        must: that it cannot be told whether another is at work there (some network file systems) is an error
            too; otherwise nothing is held then.

    Raises:
        InputError: another process has it, and still has it after some seconds.
    """
    descriptor = None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        _lock(descriptor)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(f"{folder}: another process is at work on this run") from None
    except (ImportError, OSError) as error:
        if descriptor is not None:
            os.close(descriptor)
        if must:
            raise InputError(
                f"{folder}: whether another process is at work on this run cannot be told ({error})"
            ) from error
        return None
    _HELD.add(descriptor)
    return descriptor


def _lock(descriptor: int) -> None:
    """Raises BlockingIOError where another process has it for longer than one takes that was killed."""
    import fcntl

    limit = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > limit:
                raise
        time.sleep(0.05)


def _leave_to_parent() -> None:
    """A forked process shares what its parent holds: a loader's, which outlives a kill of it for seconds."""
    for descriptor in _HELD:
        with suppress(OSError):
            os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def unlock(held: int | None) -> None:
    """Let others train in a run folder again. `held` is what `hold` gave."""
    if held not in _HELD:
        return  # a forked process has nothing to free: it is its parent's
    import fcntl

    _HELD.remove(held)
    # Processes that were started by other means than a fork of Python's may still share it.
    fcntl.flock(held, fcntl.LOCK_UN)
    os.close(held)
