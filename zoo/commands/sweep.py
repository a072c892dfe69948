"""The verb `sweep`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import add_set, count, whole_numbers, words
from zoo.console import waiting
from zoo.errors import InputError, Problem

SUMMARY = "Train one recipe, or a study, with several encodings and seeds, and compare them."
EXAMPLES = """
zoo sweep recipes/base/copy.yaml --encodings alibi,rope,none --seeds 0,1,2
zoo sweep recipes/base/wikitext2.yaml --encodings 'rope,{name: rope, partial: 0.25},[rope, fox]'
zoo sweep recipes/base/copy.yaml --encodings alibi,rope --grid optimizer.lr=1e-3,3e-3 --out runs/tuned
zoo sweep recipes/base/copy.yaml --encodings alibi,rope --seeds 0,1,2 --print-commands | parallel -j 4
zoo sweep recipes/base/copy.yaml --encodings alibi,rope --slurm='--partition=gpu --time=8:00:00'
zoo sweep STUDY.yaml --list
zoo sweep STUDY.yaml --only alibi,rope --limit 3 --nice && zoo compare STUDY.parquet
"""

OF_RECIPES = {"seeds": [0], "set": [], "grid": [], "select_seeds": [], "out": Path("runs")}
OF_RECIPES |= {"compare_only": False, "print_commands": False}
OF_STUDIES = {"store": None, "only": [], "limit": None, "nice": False, "list": False, "forget": None}
"""The options of each kind of file with their defaults."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="RECIPE|STUDY",
        help="a recipe, which needs no encoding; or studies",
    )
    parser.add_argument("--encodings", metavar="A,B", help="as a recipe has them, separated by commas")
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
    parser.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help="folder of the tables STUDY.parquet (default: that of each study)",
    )
    parser.add_argument(
        "--only", type=words, default=[], metavar="A,B", help="of a study: these encodings (default: all)"
    )
    parser.add_argument(
        "--limit", type=count, metavar="N", help="of a study: train at most N missing entries"
    )
    parser.add_argument("--nice", action="store_true", help="of a study: give way to other processes")
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
    how.add_argument("--list", action="store_true", help="of a study: show finished and missing entries")
    how.add_argument(
        "--forget", metavar="ENTRY", help="of a study: remove a stored entry, such as alibi_seed0"
    )


def run(options: argparse.Namespace) -> None:
    if options.encodings is None:
        run_studies(options)
    else:
        run_recipe(options)


def run_studies(options: argparse.Namespace) -> None:
    """Work on studies. A file without the key `encodings` is a recipe, which needs the option."""
    from zoo.recipe.tree import read_file

    if any("encodings" not in read_file(file).values for file in options.files):
        options.verb_parser.error("the following arguments are required for a recipe: --encodings")
    _validate_unset(options, OF_RECIPES, "a study file has its own")
    with waiting("loading torch"):
        from zoo.sweep.queue import Queue

    queue = Queue(options.files, options.store, options.only, options.limit, options.jobs, options.nice)
    if options.list:
        queue.print_list()
    elif options.forget is not None:
        queue.forget(options.forget)
    elif options.slurm is not None:
        queue.submit(options.slurm)
    else:
        queue.run()


def run_recipe(options: argparse.Namespace) -> None:
    """Run the sweep of one recipe."""
    _validate_unset(options, OF_STUDIES, "only a study file takes it")
    if len(options.files) > 1:
        raise InputError(f"one recipe, not {len(options.files)}: {' '.join(map(str, options.files))}")
    with waiting("loading torch"):
        from zoo.sweep.grid import read_grid
        from zoo.sweep.plan import read_encodings
        from zoo.sweep.sweep import Sweep

        encodings, grid = read_encodings(options.encodings), read_grid(options.grid)
    if options.select_seeds and not grid:
        raise InputError("--select-seeds choose from a grid: add --grid KEY=A,B")
    sweep = Sweep(
        options.files[0], encodings, options.seeds, options.set, options.out, options.jobs, grid,
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


def _validate_unset(options: argparse.Namespace, defaults: dict[str, object], why: str) -> None:
    given = [name for name, default in defaults.items() if getattr(options, name) != default]
    if given:
        raise InputError(Problem(why, where=f"--{given[0].replace('_', '-')}"))
