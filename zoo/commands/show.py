"""The verb `show`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import add_set
from zoo.console import waiting
from zoo.errors import InputError

SUMMARY = "Print the recipe of a file or of a run with every key resolved, or the schema of recipes."
EXAMPLES = """
zoo show recipes/alibi_wikitext2.yaml
zoo show recipes/alibi_wikitext2.yaml --set model.encoding=rope > rope.yaml
zoo show runs/alibi_wikitext2
zoo show --schema > recipe.schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", type=Path, nargs="?", metavar="RECIPE", help="a recipe file, or a run folder"
    )
    add_set(parser, "change a key of the recipe")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of recipes, for editors")


def run(options: argparse.Namespace) -> None:
    if options.schema:
        import json

        from zoo.recipe import json_schema

        print(json.dumps(json_schema(), indent=2))
        return
    if options.recipe is None:
        raise InputError("show what? A recipe file (show recipes/alibi_wikitext2.yaml), or --schema")
    with waiting(f"reading {options.recipe}"):
        from zoo.recipe import dump_used, read_recipe, recipe_of_run

        if options.recipe.is_dir():
            from zoo.runs.folder import stored_recipe

            if options.set:
                raise InputError(f"--set changes a recipe file; {options.recipe} is a run")
            recipe = recipe_of_run(stored_recipe(options.recipe))  # which imports no plugin
        else:
            recipe = read_recipe(options.recipe, options.set)
        from zoo.training.plan import plan_of

        try:
            plan = plan_of(recipe).lines()
        except InputError as error:  # this machine cannot build the encoding, or use the data
            plan = [f"no plan: {line}" for line in str(error).splitlines()]
    sets = "".join(f" --set {text}" for text in options.set)
    print(f"# {options.recipe}{sets}, resolved", dump_used(recipe), *(f"# {line}" for line in plan), sep="\n")
