"""`python -m zoo`."""

import atexit
import sys

from zoo.console import show_all
from zoo.launch.signals import exit_on_signals, exit_with_code_on_signals, ignore_signals


def run() -> int:
    """The command line as a process of its own: handles signals from here to its end."""
    exit_on_signals()
    atexit.register(ignore_signals)  # registered first, called last
    show_all()
    from zoo.cli import main

    try:
        code = main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # a bug: print its traceback
        sys.excepthook(*sys.exc_info())
        code = 1
    exit_with_code_on_signals(code)
    return code


if __name__ == "__main__":
    sys.exit(run())
