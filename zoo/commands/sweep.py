"""The verb `sweep`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import add_set, count, whole_numbers
from zoo.console import waiting
from zoo.errors import InputError

SUMMARY = "Train one recipe with several encodings and seeds, and compare them."
EXAMPLES = """
zoo sweep recipes/base/copy.yaml --encodings alibi,rope,none --seeds 0,1,2
zoo sweep recipes/base/wikitext2.yaml --encodings 'rope,{name: rope, partial: 0.25},[rope, fox]'
zoo sweep recipes/base/copy.yaml --encodings alibi,rope --grid optimizer.lr=1e-3,3e-3 --out runs/tuned
zoo sweep recipes/base/copy.yaml --encodings alibi,rope --seeds 0,1,2 --print-commands | parallel -j 4
zoo sweep recipes/base/copy.yaml --encodings alibi,rope --slurm='--partition=gpu --time=8:00:00'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="a recipe file; it needs no encoding")
    parser.add_argument(
        "--encodings", required=True, metavar="A,B", help="as a recipe has them, separated by commas"
    )
    parser.add_argument("--seeds", type=whole_numbers, default=[0], metavar="N,N", help="seeds (default: 0)")
    add_set(parser, "change a key of the recipe, for all runs")
    parser.add_argument(
        "--grid", action="append", default=[], metavar="KEY=A,B",
        help="try these values with each encoding, train it with the best by validation loss, and compare "
        "these runs; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--select-seeds", type=whole_numbers, default=[], metavar="N,N",
        help="seeds that choose from the grid; --seeds are trained with the choice alone (default: the "
        "smallest number that is not in --seeds)",
    )  # fmt: skip
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="folder of the run folders (default: runs)",
    )
    parser.add_argument(
        "--jobs",
        type=count,
        metavar="N",
        help="runs at the same time (default: one for each visible GPU; on a CPU one; SLURM decides itself)",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--slurm",
        nargs="?",
        const="",
        metavar="OPTIONS",
        help="submit the runs as a SLURM array, the comparison as a job after it; options of sbatch",
    )
    how.add_argument(
        "--compare-only", action="store_true", help="train nothing: compare the runs that are finished"
    )
    how.add_argument(
        "--print-commands", action="store_true", help="print the commands of unfinished runs, and run nothing"
    )


def run(options: argparse.Namespace) -> None:
    with waiting("loading torch"):
        from zoo.sweep.grid import read_grid
        from zoo.sweep.plan import read_encodings
        from zoo.sweep.sweep import Sweep

        encodings, grid = read_encodings(options.encodings), read_grid(options.grid)
    if options.select_seeds and not grid:
        raise InputError("--select-seeds choose from a grid: add --grid KEY=A,B")
    sweep = Sweep(
        options.recipe, encodings, options.seeds, options.set, options.out, options.jobs, grid,
        options.select_seeds,
    )  # fmt: skip
    if options.print_commands:
        sweep.print_commands()
    elif options.slurm is not None:
        sweep.submit(options.slurm)
    elif options.compare_only:
        sweep.compare()
    else:
        sweep.run()
