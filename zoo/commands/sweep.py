"""The verb `sweep`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import add_set, count, whole_numbers, words
from zoo.console import waiting
from zoo.errors import InputError, Problem
from zoo.launch.ranks import exit_when_parent_dies

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

OF_RECIPES = ("encodings", "seeds", "set", "grid", "select_seeds", "out", "compare_only", "print_commands")
OF_STUDIES = ("store", "only", "limit", "nice", "keep", "forget")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "a recipe, which needs no encoding; or studies, files with the key `encodings` or `extends`"
    parser.add_argument("files", type=Path, nargs="+", metavar="RECIPE|STUDY", help=what)
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
        "--out", type=Path, default=Path("runs"), metavar="DIR",
        help="folder of the run folders (default: runs)",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=count, metavar="N",
        help="runs at the same time (default: one for each visible GPU; on a CPU one; SLURM decides itself)",
    )  # fmt: skip
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--slurm", nargs="?", const="", metavar="OPTIONS",
        help="submit the runs as a SLURM array, the comparison as a job after it; of a study as many jobs as "
        "--jobs; options of sbatch",
    )  # fmt: skip
    how.add_argument(
        "--compare-only", action="store_true", help="train nothing: compare the runs that are finished"
    )
    how.add_argument(
        "--print-commands", action="store_true", help="print the commands of unfinished runs, and run nothing"
    )
    how.add_argument("--list", action="store_true", help="show finished and missing runs")
    how.add_argument("--forget", metavar="ENTRY", help="of a study: remove a stored entry, as alibi_seed0")
    study = parser.add_argument_group("of a study")
    tables = "folder of the tables STUDY.parquet (default: that of each study)"
    study.add_argument("--store", type=Path, metavar="DIR", help=tables)
    study.add_argument("--only", type=words, default=[], metavar="A,B", help="these encodings (default: all)")
    study.add_argument("--limit", type=count, metavar="N", help="train at most N missing entries")
    study.add_argument("--nice", action="store_true", help="give way to other processes")
    study.add_argument("--keep", action="store_true", help="keep the run folders, in runs/studies/STUDY")


def run(options: argparse.Namespace) -> None:
    exit_when_parent_dies()
    of_study = any(map(_is_study, options.files))
    parser = options.verb_parser
    if not of_study and options.encodings is None:
        from zoo.recipe.reader import find_recipe

        if missing := [file for file in options.files if not find_recipe(file).exists()]:
            raise InputError(Problem("no such file", where=str(file)) for file in missing)
    for name in OF_RECIPES if of_study else OF_STUDIES:
        if getattr(options, name) != parser.get_default(name):
            why = "a study does not take it" if of_study else "only a study takes it"
            why = "a study file has its own" if name in OF_RECIPES[:4] else why
            raise InputError(Problem(why, where=f"--{name.replace('_', '-')}"))
    if not of_study and options.encodings is None:
        parser.error("a recipe needs --encodings, and a study the key `encodings` or `extends`")
    if not of_study and len(options.files) > 1:
        parser.error(f"one recipe, not {len(options.files)}: {' '.join(map(str, options.files))}")
    if options.select_seeds and not options.grid:
        raise InputError("--select-seeds choose from a grid: add --grid KEY=A,B")
    with waiting("loading torch"):
        from zoo.sweep.flags import read_flags
        from zoo.sweep.sweep import FolderSweep, TableSweep, print_list
    # The command that repeats this one: here, in another process, or as a job of SLURM.
    how = ("--slurm", options.slurm, f"--slurm={options.slurm}", "--compare-only", "--print-commands")
    words = [word for word in options.arguments if word not in how]
    if of_study:
        sweep = TableSweep(
            options.files, words, options.store, options.only, options.limit, options.jobs, options.nice,
            options.keep,
        )  # fmt: skip
    else:
        study = read_flags(options.files[0], options.encodings, options.seeds, options.set, options.grid)
        sweep = FolderSweep(study, words, options.out, options.jobs, options.select_seeds)
    if options.list:
        print_list(sweep.entries())
    elif options.forget is not None:
        sweep.forget(options.forget)
    elif options.slurm is not None:
        sweep.submit(options.slurm)
    elif options.print_commands:
        sweep.print_commands()
    elif options.compare_only:
        sweep.run(trains=False)
    else:
        sweep.run()


def _is_study(file: Path) -> bool:
    from zoo.recipe.tree import read_file

    return file.is_file() and not {"encodings", "extends"}.isdisjoint(read_file(file).values)
