"""SIGINT and SIGTERM from the start of a command to its end. Imports nothing heavy.

A KeyboardInterrupt raised during the import of torch, numpy or matplotlib can be lost in native code or an
`except` of the libraries, so none is raised while heavy modules are imported.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
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


def _set_handler(handler: Callable[..., object] | signal.Handlers) -> None:
    for number in NUMBERS if may_set_handlers() else ():
        # A background job of a shell script ignores Ctrl-C.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def may_set_handlers() -> bool:
    """Python allows signal handlers in the main thread only."""
    return threading.current_thread() is threading.main_thread()
