"""The verb `fit`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import add_set
from zoo.console import waiting
from zoo.errors import InputError

SUMMARY = "Train the model of a recipe."
EXAMPLES = """
zoo fit recipes/alibi_maxindex.yaml
zoo fit recipes/alibi_wikitext2.yaml --set data.root=data --set trainer.max_steps=200
zoo fit recipes/alibi_wikitext2.yaml --set model.encoding.slopes=geometric
zoo fit recipes/alibi_wikitext2.yaml --out runs/mine --resume
zoo fit recipes/alibi_wikitext2.yaml --set trainer.num_nodes=2 --slurm='--partition=gpu --time=8:00:00'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, nargs="?", metavar="RECIPE", help="the recipe, a YAML file")
    parser.add_argument("--recipe", type=Path, metavar="RECIPE", help="the same")
    add_set(parser, "change a key of the recipe")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="the run folder (default: runs/, named by the recipe)"
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const=True,
        default=False,
        metavar="auto",
        help="resume from the run folder's last checkpoint; `--resume auto`: if there is a run, else begin "
        "one (for a job script that is run again from its top)",
    )
    parser.add_argument(
        "--slurm",
        nargs="?",
        const="",
        metavar="OPTIONS",
        help="write a job script for SLURM and submit it; options of sbatch",
    )


def run(options: argparse.Namespace) -> int:
    from zoo.launch.devices import devices_taken
    from zoo.launch.ranks import exit_when_parent_dies, find_launcher

    exit_when_parent_dies()
    _set_recipe(options)
    with waiting(f"reading {options.recipe}"):
        from zoo.recipe import read_located

        recipe, tree = read_located(options.recipe, options.set)
    if options.slurm is not None:
        from zoo.training.submit import submit

        try:
            print(submit(recipe, options.recipe, options.set, options.out, options.resume, options.slurm))
        except InputError as error:
            raise tree.located(error) from error
        return 0
    trainer = recipe.trainer
    processes = devices_taken(trainer.devices, trainer.accelerator)
    if processes > 1 and trainer.num_nodes == 1 and find_launcher() is None:
        from zoo.launch.torchrun import launch

        return launch(options.arguments, processes)
    with waiting(f"{recipe.name}: loading torch and lightning"):
        from zoo.reports.fit import fit

    try:
        fit(recipe, out=options.out, resume=options.resume)
    except InputError as error:
        raise tree.located(error) from error
    return 0


def _set_recipe(options: argparse.Namespace) -> None:
    """`fit FILE` and `fit --recipe FILE` are the same; of `--resume FILE` the value is the file."""
    given = [path for path in (options.file, options.recipe) if path is not None]
    if options.resume not in (True, False, "auto"):
        given.append(Path(options.resume))
        options.resume = True
    if len(given) != 1:
        found = f", not {' and '.join(map(str, given))}" if given else ""
        raise InputError(f"give one RECIPE: zoo fit RECIPE (see `zoo list recipes`){found}")
    options.recipe = given[0]
