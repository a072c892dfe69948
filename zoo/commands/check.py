"""The verb `check`."""

from __future__ import annotations

import argparse

from zoo.commands.argument_types import add_set
from zoo.console import waiting

SUMMARY = "Try the laws that encodings, datasets and protocols keep, and print what holds or what to fix."
EXAMPLES = """
zoo check my_encoding.py
zoo check my_encoding.py --quick
zoo check my_encoding.py --all --verbose
zoo check rope --set base=500000 --set layout=interleaved
zoo check '[alibi, {name: shaw, values: false}]'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    named = "an encoding's name, a Python file that registers some, or one as a recipe has it"
    parser.add_argument("what", metavar="NAME|FILE|ENCODING", help=named)
    add_set(parser, "give an option; only the encoding with the options given is tried then")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--all", action="store_true", help="the slow laws too: torch.compile, and training in two processes"
    )
    which.add_argument(
        "--quick", action="store_true", help="of the laws of encodings only those that `fit` tries"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="every law and fault too, and the output of the plugin"
    )


def run(options: argparse.Namespace) -> None:
    with waiting("loading torch"):
        from zoo.contract.check import check

    check(options.what, options.set, options.all, options.verbose, options.quick)
