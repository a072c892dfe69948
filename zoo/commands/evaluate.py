"""The verb `evaluate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import add_set, count, lengths, words
from zoo.console import waiting

SUMMARY = "Score trained models at several sequence lengths."
EXAMPLES = """
zoo evaluate runs/alibi_maxindex
zoo evaluate runs/alibi_wikitext2 runs/rope_wikitext2 --lengths 256,512,1024 --devices 2
zoo evaluate runs/rope_wikitext2 --checkpoints all --protocol sliding --set evaluate.stride=64
zoo evaluate runs/rope_wikitext2 --data my_novels/
zoo evaluate runs/rope_wikitext2 --set model.encoding.scaling=yarn --set model.encoding.factor=4
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="run folders or checkpoints")
    parser.add_argument("--lengths", type=lengths, metavar="N,N", help="in tokens (default: the recipe's)")
    parser.add_argument("--protocol", type=words, metavar="NAME,NAME", help="default: the recipe's")
    parser.add_argument(
        "--devices",
        type=count,
        metavar="N",
        help="GPUs or processes to share it (default: those of the launcher)",
    )
    parser.add_argument(
        "--checkpoints", choices=["last", "all"], default="last",
        help="all: also those of a run that checkpoint.keep_every_n_steps has kept, with a table by step",
    )  # fmt: skip
    parser.add_argument(
        "--data",
        metavar="CORPUS",
        help="another corpus to score: a text dataset, a file or folder of text, or a recipe (.yaml); for "
        "generated data the run's own dataset, with other options by --set",
    )
    add_set(parser, "change a key of the run's recipe that may change after training")


def run(options: argparse.Namespace) -> int:
    from zoo.launch.ranks import exit_when_parent_dies, find_launcher, leave_launch
    from zoo.runs.folder import runs_among, validate_present

    exit_when_parent_dies()
    validate_present(options.paths)
    options.paths = runs_among(options.paths)
    if options.devices == 1:
        leave_launch()
    elif options.devices and find_launcher() is None:
        from zoo.launch.torchrun import launch

        return launch(options.arguments, options.devices)
    with waiting("loading torch and lightning"):
        if options.checkpoints == "all":
            from zoo.reports.evaluate import evaluate_steps as evaluate
        else:
            from zoo.reports.evaluate import evaluate
    evaluate(options.paths, options.lengths, options.protocol, options.set, options.devices, options.data)
    return 0
