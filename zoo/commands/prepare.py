"""The verb `prepare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import add_set
from zoo.console import waiting
from zoo.errors import InputError

SUMMARY = "Tokenize the text of a recipe before its training."
EXAMPLES = """
zoo prepare recipes/alibi_wikitext2.yaml
zoo prepare recipes/alibi_wikitext2.yaml --set data.name=text --set data.root=data/novels
zoo prepare recipes/alibi_wikitext2.yaml --set data.cache=/scratch/tokens
zoo prepare recipes/alibi_wikitext2.yaml --set data.name=tokens --set data.root=nanoGPT/data/openwebtext \
  --set data.tokenizer=gpt2
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="the recipe, a YAML file")
    add_set(parser, "change a key of the recipe")


def run(options: argparse.Namespace) -> None:
    with waiting(f"reading {options.recipe}"):
        from zoo.recipe import read_located

        recipe, tree = read_located(options.recipe, options.set)
        from zoo.data.prepare import prepare
    try:
        print(prepare(recipe))
    except InputError as error:
        raise tree.located(error) from error
