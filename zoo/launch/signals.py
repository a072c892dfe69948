"""SIGINT and SIGTERM from the start of a command to its end. Imports nothing heavy.

A KeyboardInterrupt raised during the import of torch, numpy or matplotlib can be lost in native code or an
`except` of the libraries, so none is raised while heavy modules are imported.
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
"""The exit code of a command that the user stopped."""


def exit_on_signals() -> None:
    """From now on a signal ends this process at once: for a command that has not begun its work."""

    def leave(*_: object) -> None:
        if is_first_process():
            # os.write: a handler may run in the middle of another print.
            os.write(2, b"interrupted; nothing was written\n")
        os._exit(INTERRUPTED)

    _set_handler(leave)


def exit_with_code_on_signals(code: int) -> None:
    """After the command has reported its end: a signal ends the process with this code."""
    _set_handler(lambda *_: os._exit(code))


def ignore_signals() -> None:
    """For the end of the process, where Python restores the defaults and a finished command would seem
    killed."""
    _set_handler(signal.SIG_IGN)


def raise_on_signals(*modules: str) -> None:
    """Import `modules` as far as they are installed; after that signals raise KeyboardInterrupt."""
    for name in modules:
        with suppress(ImportError):  # reported where the module is used
            import_module(name)
    _set_handler(signal.default_int_handler)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Handle signals after the block: for the import of a heavy module within a command."""
    received: list[int] = []
    before = _set_handler(lambda number, frame: received.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in received[:1]:
            signal.raise_signal(number)


def _set_handler(handler: Callable[..., object] | signal.Handlers) -> dict[signal.Signals, object]:
    """Returns the handlers that were replaced."""
    if not may_set_handlers():
        return {}
    # A background job of a shell script ignores Ctrl-C.
    numbers = [number for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in numbers}


def may_set_handlers() -> bool:
    """Python allows signal handlers in the main thread only."""
    return threading.current_thread() is threading.main_thread()
