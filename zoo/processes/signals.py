"""SIGINT and SIGTERM while a command begins and ends. Imports nothing heavy.

An interrupt that is raised amid the import of torch, numpy or matplotlib is not sure to arrive: native code
and the libraries' own `except` swallow it or make something else of it. So nothing is raised until all that
is heavy is there.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

from zoo.processes.launch import is_first_process

NUMBERS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130


def leave_at_once() -> None:
    """Until something else is said, a signal ends this process, with one line of the first of several.

    Only for a process that has done nothing yet, and is the command line's own: nothing is cleaned up.
    """
    _handle(lambda *given: leave_interrupted())


def leave_interrupted() -> None:
    """End this process now, whatever its threads do."""
    if is_first_process():
        # os.write: a handler may run in the midst of another print.
        os.write(2, b"interrupted; nothing was written\n")
    os._exit(INTERRUPTED)


def leave_with(code: int) -> None:
    """All is done and told: a signal from now on only hastens the end."""
    _handle(lambda *given: os._exit(code))


def raise_from_now_on(*modules: str) -> None:
    """Signals raise KeyboardInterrupt, once these modules are there which would else be imported later."""
    for name in modules:
        with suppress(ImportError):  # who needs it tells
            import_module(name)
    _handle(signal.default_int_handler)


@contextmanager
def handled(handler: Callable[..., object]) -> Iterator[None]:
    """Signals are this handler's until the block ends; then they are again whose they were."""
    before = _handle(handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _handle(handler: Callable[..., object]) -> dict[signal.Signals, object]:
    """Returns the handlers that there were, of those signals that have changed hands."""
    if threading.current_thread() is not threading.main_thread():
        return {}  # Python lets no other thread have handlers
    # A job in the background of a script is not meant to hear Ctrl-C.
    numbers = [number for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in numbers}
