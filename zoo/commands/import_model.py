"""The verb `import`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import add_set, words
from zoo.console import waiting

SUMMARY = "Make a run of a pretrained model in Hugging Face's format, to evaluate, compare or train on."
EXAMPLES = """
zoo import HuggingFaceTB/SmolLM2-135M
zoo import downloads/pythia-160m --name pythia
zoo import downloads/llama --set data.name=text --set data.root=books
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "origin", metavar="PATH_OR_ID", help="a folder with config.json and safetensors, or one of the hub"
    )
    parser.add_argument("--name", metavar="NAME", help="of the run (default: the last part of its path)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run folder (default: runs/NAME)")
    parser.add_argument(
        "--ignore",
        type=words,
        default=[],
        metavar="KEY,KEY",
        help="keys of config.json that are not known, and change nothing that is computed",
    )
    add_set(parser, "change a key of the recipe: the evaluation data")


def run(options: argparse.Namespace) -> None:
    with waiting("loading torch"):
        from zoo.pretrained.import_model import import_model, read_published

    published = read_published(options.origin, options.ignore)
    folder = import_model(published, options.name, options.set, options.out)
    length = published.config.length
    print(f"done: {folder} holds this {published.name}, trained on {length:,} tokens at a time")
    print(f"look further: python -m zoo evaluate {folder} --lengths {length},{2 * length}")
