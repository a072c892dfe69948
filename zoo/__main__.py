"""`python -m zoo`."""

import sys

from zoo.output import show_all
from zoo.processes.signals import leave_at_once, leave_with


def run() -> int:
    """The command line as a process of its own: what it does with signals holds from here to its end."""
    leave_at_once()
    show_all()
    from zoo.cli import main

    code = 1  # of an error that nobody foresaw
    try:
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    finally:
        leave_with(code)
    return code


if __name__ == "__main__":
    sys.exit(run())
