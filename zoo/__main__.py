"""`python -m zoo`."""

import atexit
import os
import sys

from zoo.console import show_all
from zoo.launch.signals import exit_on_signals, exit_with_code_on_signals, ignore_signals


def run() -> int:
    """The command line as a process of its own: what it does with signals holds from here to its end."""
    exit_on_signals()
    atexit.register(ignore_signals)  # the first to be registered, so that it is called last
    show_all()
    from zoo.cli import main

    try:
        code = main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # a bug: it keeps its traceback
        sys.excepthook(*sys.exc_info())
        code = 1
    exit_with_code_on_signals(code)
    _skip_teardown_of_process_group(code)
    return code


def _skip_teardown_of_process_group(code: int) -> None:
    """End this process here if it is in a process group.

    The threads of gloo may still have to free a tensor that Python knows, and wait for the interpreter lock,
    while the interpreter ends and joins them: such a process hangs, and with it torchrun and the other nodes.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(run())
