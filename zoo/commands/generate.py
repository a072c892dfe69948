"""The verb `generate`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from zoo.commands.argument_types import add_set, count
from zoo.console import waiting
from zoo.errors import InputError

SUMMARY = "Generate text from a prompt, also past the trained length."
EXAMPLES = """
zoo generate runs/rope_wikitext2 --prompt "The river"
zoo generate runs/rope_wikitext2 --prompt "The river" --max-new-tokens 500 --temperature 0.8 --top-p 0.95
zoo generate runs/pythia-160m --temperature 0 < beginning.txt
zoo generate runs/rope_wikitext2 --prompts prompts.txt > written.jsonl
zoo generate runs/rope_wikitext2 --prompt "The river" --set model.encoding.scaling=yarn --seed 1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="a run folder or a checkpoint")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--prompt", metavar="TEXT", help="the prompt (default: stdin)")
    what.add_argument("--prompts", type=Path, metavar="FILE", help="a prompt on each line; writes JSON lines")
    parser.add_argument(
        "--max-new-tokens", type=count, default=200, metavar="N", help="where to end (default: 200)"
    )
    parser.add_argument(
        "--temperature", type=float, default=1.0, metavar="T", help="0 is greedy decoding (default: 1)"
    )
    parser.add_argument("--top-k", type=count, metavar="K", help="draw from the K likeliest tokens only")
    parser.add_argument(
        "--top-p", type=float, default=1.0, metavar="P",
        help="draw from the likeliest tokens only, that together have probability P",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the draws (default: 0)")
    parser.add_argument("--device", default="cpu", metavar="NAME", help="where to compute (default: cpu)")
    add_set(parser, "change a key of the run's recipe that may change after training")


def run(options: argparse.Namespace) -> None:
    prompts = _prompts(options)
    with waiting("loading torch and the model"):
        from zoo.generation.terminal import print_batch, print_text
        from zoo.generation.text import open_generator
        from zoo.models.decoding import Sampling

        sampling = Sampling(options.temperature, options.top_k, options.top_p)
        generator = open_generator(options.path, options.device, sets=options.set)
    asked = (options.max_new_tokens, sampling, options.seed)
    if options.prompts is None:
        print_text(generator, prompts[0], *asked)
    else:
        print_batch(generator, prompts, *asked)


def _prompts(options: argparse.Namespace) -> list[str]:
    if options.prompts is not None:
        from zoo.files import read_text

        prompts = [line for line in read_text(options.prompts).splitlines() if line.strip()]
        if not prompts:
            raise InputError(f"{options.prompts}: no prompt in it; there is one on each line")
        return prompts
    if options.prompt is not None:
        return [options.prompt]
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError('no prompt: --prompt TEXT, --prompts FILE, or a text on stdin; --prompt "" has none')
    try:
        # As bytes: what a terminal is set to says nothing about a text.
        return [sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")]
    except UnicodeDecodeError as error:
        raise InputError(f"stdin: not UTF-8 text, at byte {error.start}") from error
