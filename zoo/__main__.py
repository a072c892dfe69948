"""`python -m zoo`."""

import sys

from zoo.cli import main
from zoo.console import show_all


def run() -> int:
    """The command line as a process of its own."""
    show_all()
    return main()


if __name__ == "__main__":
    sys.exit(run())
