"""The verb `draw`."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoo.commands.argument_types import count

SUMMARY = "Draw what an encoding does: its vectors, angles, biases and attention, inside and beyond a length."
EXAMPLES = """
zoo draw rope
zoo draw alibi rope t5 sinusoidal --out encodings.svg
zoo draw rope '{name: rope, scaling: yarn, factor: 4}' --length 512
zoo draw '[rope, fox]' --trained 32 --length 128 --out rope_fox.html
zoo draw my_encoding.py --heads 8 --d-model 256 --out mine.gif
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="+", metavar="ENCODING",
        help="an encoding's name, one as a recipe has it, or a Python file that registers some (FILE.py, or "
        "FILE.py:NAME for one of them)",
    )  # fmt: skip
    parser.add_argument(
        "--length", type=count, default=256, metavar="N", help="how far it is drawn, in tokens (default: 256)"
    )
    parser.add_argument(
        "--trained", type=count, metavar="N", help="the trained length, which is marked (default: 64)"
    )
    parser.add_argument("--heads", type=count, default=4, metavar="N", help="attention heads (default: 4)")
    parser.add_argument(
        "--d-model", type=count, default=128, metavar="N", help="width of the model (default: 128)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="a .png, .svg, .gif or .html (default: NAME.png)"
    )


def run(options: argparse.Namespace) -> None:
    from zoo.figures.commands import draw

    draw(
        options.what, options.out, length=options.length, trained=options.trained, heads=options.heads,
        d_model=options.d_model,
    )  # fmt: skip
