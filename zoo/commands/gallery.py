"""The verb `gallery`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.console import waiting
from zoo.launch.signals import raise_on_signals

SUMMARY = "Build a site with a page for each encoding, task and protocol: formulas, pictures, costs, results."
EXAMPLES = """
zoo gallery --out site
zoo gallery my_encoding.py --out site
zoo gallery rope alibi --out two
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="*", metavar="NAME|FILE",
        help="encodings, or Python files that register some: their pages and the overview; default: all",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("site"), metavar="DIR",
        help="the folder to write, which may hold an earlier gallery; default: site",
    )  # fmt: skip


def run(options: argparse.Namespace) -> None:
    with waiting("reading"):
        from zoo.gallery.build import build, chosen_encodings, require_packages, validate_out

        # What is wrong is told before anything heavy is imported.
        chosen_encodings(options.what)
        require_packages()
        validate_out(options.out)
        raise_on_signals("torch._dynamo")
    print(f"gallery: {build(options.what, options.out)}")
