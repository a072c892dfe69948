"""The verb `draw`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import add_set, count, lengths, words
from zoo.console import waiting
from zoo.errors import InputError, Problem

SUMMARY = "Draw what an encoding does, or what a trained model does, inside and beyond the trained length."
EXAMPLES = """
zoo draw rope
zoo draw alibi rope t5 sinusoidal --out encodings.svg
zoo draw rope '{name: rope, scaling: yarn, factor: 4}' '[rope, fox]' --trained 32 --length 512
zoo draw runs/rope_wikitext2 runs/alibi_wikitext2 --lengths 256,1024 --out attention.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="+", metavar="ENCODING|RUN",
        help="an encoding's name, one as a recipe has it, or a Python file that registers some (FILE.py, or "
        "FILE.py:NAME for one of them); or the paths of runs or checkpoints",
    )  # fmt: skip
    parser.add_argument(
        "--length", type=count, metavar="N", help="how far an encoding is drawn, in tokens (default: 256)"
    )
    parser.add_argument(
        "--trained", type=count, metavar="N", help="the trained length, which is marked (default: 64)"
    )
    parser.add_argument("--heads", type=count, metavar="N", help="attention heads (default: 4)")
    parser.add_argument("--d-model", type=count, metavar="N", help="width of the model (default: 128)")
    parser.add_argument(
        "--lengths", type=lengths, metavar="N,N", help="of runs: in tokens (default: the trained one, x2, x4)"
    )
    parser.add_argument("--device", metavar="NAME", help="of runs: where to compute (default: cpu)")
    add_set(parser, "of runs: change a key of the recipe that may change after training")
    parser.add_argument(
        "--panels", type=words, metavar="NAME,NAME", help="draw these panels alone, as attention,bias_matrix"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="a .png, .svg, .pdf or .html (default: NAME.png)"
    )


def run(options: argparse.Namespace) -> None:
    with waiting("loading torch"):
        from zoo.reports.draw import draw_encodings, draw_runs, is_run

    runs = [text for text in options.what if is_run(text)]
    sizes = {name: getattr(options, name) for name in ("length", "trained", "heads", "d_model")}
    sizes = {name: value for name, value in sizes.items() if value is not None}
    of_runs = {name: getattr(options, name) for name in ("lengths", "device")} | {"set": options.set or None}
    if runs:
        _refuse(sizes, f"for encodings, and {runs[0]} is a run")
        others = [text for text in options.what if text not in runs]
        if others:
            raise InputError(f"{runs[0]} is a run and {others[0]} an encoding: draw them one after the other")
        draw_runs(
            [Path(text) for text in runs], options.out, options.panels, lengths=options.lengths,
            sets=options.set, device=options.device or "cpu",
        )  # fmt: skip
        return
    _refuse(of_runs, f"for runs, and {options.what[0]} is an encoding")
    draw_encodings(options.what, options.out, options.panels, **sizes)


def _refuse(given: dict[str, object], why: str) -> None:
    named = {f"--{name.replace('_', '-')}": value for name, value in given.items()}
    problems = [Problem(f"{name} is {why}") for name, value in named.items() if value is not None]
    if problems:
        raise InputError(problems)
