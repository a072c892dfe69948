"""SIGINT and SIGTERM from the start of a command to its end. Imports nothing heavy.

A KeyboardInterrupt that is raised during the import of torch, numpy or matplotlib can be lost: native code
and `except` clauses of the libraries swallow it. So none is raised while the heavy modules are imported.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

from zoo.launch.ranks import is_first_process

NUMBERS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
"""The exit code of a command that was stopped by the user."""
NOTHING_WRITTEN = "interrupted; nothing was written"


def exit_on_signals() -> None:
    """From now on a signal ends this process at once: for a command that has not begun its work yet."""
    _set_handler(lambda *given: exit_interrupted())


def exit_interrupted() -> None:
    """End this process now, whatever its threads do; the first of several prints a message."""
    if is_first_process():
        # os.write: a handler may run in the middle of another print.
        os.write(2, f"{NOTHING_WRITTEN}\n".encode())
    os._exit(INTERRUPTED)


def exit_with_code_on_signals(code: int) -> None:
    """After the command has reported its end: a signal from now on ends the process with this code."""
    _set_handler(lambda *given: os._exit(code))


def ignore_signals() -> None:
    """For the end of the process, where Python restores the defaults: what is done would seem killed."""
    _set_handler(signal.SIG_IGN)


def raise_on_signals(*modules: str) -> None:
    """From now on signals raise KeyboardInterrupt. `modules` are imported first, if they are installed."""
    for name in modules:
        with suppress(ImportError):  # reported by whoever needs it
            import_module(name)
    _set_handler(signal.default_int_handler)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Signals are handled after the block: for an import of something heavy in the midst of a command."""
    came: list[int] = []
    try:
        with signal_handler(lambda number, frame: came.append(number)):
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


@contextmanager
def signal_handler(handler: Callable[..., object]) -> Iterator[None]:
    """Handle signals within the block, and restore the previous handlers after it."""
    before = _set_handler(handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _set_handler(handler: Callable[..., object] | signal.Handlers) -> dict[signal.Signals, object]:
    """Returns the handlers that were replaced."""
    if not may_set_handlers():
        return {}
    # A background job of a shell script ignores Ctrl-C, and is meant to.
    numbers = [number for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in numbers}


def may_set_handlers() -> bool:
    """Python allows signal handlers in the main thread only."""
    return threading.current_thread() is threading.main_thread()
