"""The verb `list`."""

from __future__ import annotations

import argparse

from zoo.console import waiting

LISTS = ("encodings", "datasets", "tasks", "protocols", "optimizers", "schedules", "recipes", "runs")
SUMMARY = "List encodings, datasets, tasks, protocols, optimizers, schedules, recipes or runs."
EXAMPLES = """
zoo list encodings
zoo list 'rope*'
zoo list recipes '*wikitext2*'
zoo list runs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", default="encodings", metavar="|".join(LISTS), help="default: encodings"
    )
    parser.add_argument("pattern", nargs="?", metavar="PATTERN", help="names to list; * and ? as in a shell")


def run(options: argparse.Namespace) -> None:
    what, pattern = options.what, options.pattern
    if what not in LISTS and pattern is None:
        what, pattern = "encodings", what
    with waiting("reading"):
        from zoo.listing import listing

        listed = listing(what, pattern)
    print(listed)
