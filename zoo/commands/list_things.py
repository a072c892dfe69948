"""The verb `list`."""

from __future__ import annotations

import argparse

from zoo.console import waiting

LISTS = ("encodings", "datasets", "tasks", "protocols", "optimizers", "schedules", "recipes", "runs")
SUMMARY = "List encodings, datasets, tasks, protocols, optimizers, schedules, recipes or runs."
EXAMPLES = """
zoo list encodings
zoo list rope
zoo list 'rope*'
zoo list recipes '*wikitext2*'
zoo list runs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", default="encodings", metavar="|".join(LISTS),
        help="or a name, which is explained with its options (default: encodings)",
    )  # fmt: skip
    parser.add_argument("pattern", nargs="?", metavar="PATTERN", help="names to list; * and ? as in a shell")


def run(options: argparse.Namespace) -> None:
    with waiting("reading"):
        from zoo.commands.listing import listing

        listed = listing(options.what, options.pattern)
    print(listed)
