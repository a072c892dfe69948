"""The verb `export`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import add_set
from zoo.console import waiting
from zoo.errors import InputError

FORMATS = ("hf", "safetensors")
SUMMARY = "Write a trained model for other tools: a folder that `transformers` or zoo.load reads."
EXAMPLES = """
zoo export runs/rope_wikitext2 --out exported/rope
zoo export runs/rope_wikitext2 --format safetensors --out exported/rope_weights
zoo export runs/rope_wikitext2 --out exported/rerope --set model.encoding=rerope
zoo export runs/rope_wikitext2 runs/alibi_wikitext2 --release --out zoo_models
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", type=Path, nargs="+", metavar="RUN", help="a run folder, or a checkpoint")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="hf",
        help="hf: for transformers, with the zoo's own code only where transformers has no such "
        "architecture; safetensors: weights, recipe, card and tokenizer, for zoo.load (default: hf)",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new or an empty folder")
    parser.add_argument(
        "--release",
        action="store_true",
        help="write each model into a folder of DIR, which may have others, under a name that has encoding, "
        "size, corpus, tokens, length and seed; and DIR/index.json with their digests",
    )
    add_set(parser, "change a key of the run's recipe that may change after training")


def run(options: argparse.Namespace) -> None:
    if len(options.paths) > 1 and not options.release:
        raise InputError(f"{len(options.paths)} models: add --release, or export each with its own --out")
    with waiting("loading torch"):
        from zoo.pretrained.export import export
        from zoo.pretrained.release import INDEX, release

    if options.release:
        with waiting(f"writing {options.out}"):
            folders = release(options.paths, options.out, options.format, options.set)
        for folder in folders:
            print(f"released {folder}")
        reader = f"zoo import {folders[0]}" if options.format == "hf" else f'zoo.load("{folders[0]}")'
        print(f"done: {options.out / INDEX}; {reader} reads one")
        return
    with waiting(f"writing {options.out}"):
        exported = export(options.paths[0], options.out, options.format, options.set)
    if exported.difference is not None:
        own = f"with code that imports the zoo ({exported.reason})"
        kind = f"as {exported.architecture}" if exported.architecture else own
        print(f"exported {kind}; its logits differ from the run's by at most {exported.difference:.1e}")
        print(f"other tools read {exported.tokens:,} tokens at a time, by its config.json")
    if exported.harness:
        print(f"measure further, with lm-evaluation-harness: {exported.harness}")
    print(f"done: {options.out}; {exported.loaded_by} loads it")
