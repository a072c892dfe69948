"""The verb `compare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import lengths, words
from zoo.console import waiting
from zoo.errors import InputError

SUMMARY = "Compare evaluated runs: tables, plots and a page."
EXAMPLES = """
zoo compare runs/alibi_wikitext2 runs/rope_wikitext2
zoo compare runs/*_wikitext2 --protocol nonoverlapping,sliding --lengths 256,512,1024
zoo compare runs/*_wikitext2 --reference rope --out comparisons/wikitext2
zoo compare runs/alibi_wikitext2 runs/rope_wikitext2 --latex
zoo compare studies/copy.parquet --floor 0.06
zoo compare --models runs/pythia-160m runs/gpt2 --lengths 1024,2048
zoo compare --diff runs/alibi_wikitext2 runs/rope_wikitext2
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", type=Path, nargs="*", metavar="RUN", help="run folders, or .parquet files of stored runs"
    )
    parser.add_argument(
        "--protocol", type=words, metavar="NAME,NAME", help="protocols (default: all that were measured)"
    )
    parser.add_argument(
        "--lengths", type=lengths, metavar="N,N", help="lengths in tokens (default: all that were measured)"
    )
    parser.add_argument(
        "--reference", metavar="NAME", help="show differences to this encoding (default: the best as trained)"
    )
    parser.add_argument(
        "--floor", type=float, metavar="SHARE", help="of a task: rank by the score above this accuracy, too"
    )
    parser.add_argument(
        "--models",
        action="store_true",
        help="compare models that may differ in anything, in bits per byte of the same documents",
    )
    parser.add_argument(
        "--panels", type=words, metavar="NAME,NAME", help="protocols in the picture (default: all)"
    )
    parser.add_argument(
        "--latex", action="store_true", help="write compare.tex, too: the tables with booktabs, for a paper"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where it is written (default: comparison/)")
    parser.add_argument(
        "--force", action="store_true", help="compare runs that are not comparable, and mark every output"
    )
    parser.add_argument(
        "--diff", type=Path, nargs=2, metavar=("A", "B"), help="print only what differs between two runs"
    )


def run(options: argparse.Namespace) -> None:
    if options.diff:
        if options.paths:
            raise InputError("--diff takes two runs and no more: zoo compare --diff runs/a runs/b")
        with waiting("reading the runs"):
            from zoo.reports.compare import diff

            difference = diff(*options.diff)
        print(difference)
        return
    if not options.paths:
        raise InputError("compare which runs? zoo compare runs/a runs/b, or --diff runs/a runs/b")
    with waiting("loading matplotlib"):
        from zoo.reports.compare import OUT, compare
        from zoo.runs.folder import runs_among
    compare(
        runs_among(options.paths), options.out or OUT, options.protocol, options.lengths, options.force,
        options.reference, options.models, options.panels, options.latex,
        options.floor,
    )  # fmt: skip
