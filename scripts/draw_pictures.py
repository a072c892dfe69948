"""Draws the pictures of encodings that README.md and recipes/README.md show, into docs/pictures/.

    python scripts/draw_pictures.py                 all of them
    python scripts/draw_pictures.py encodings       one

Each is what `zoo draw` draws, as a PNG of few colours, so that none is larger than 200 kB.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

from PIL import Image

from zoo.figures.encoding import figure
from zoo.figures.style import content
from zoo.files import atomic_write

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "pictures"
LARGEST = 200_000
"""Bytes."""
PICTURES: dict[str, list[Any]] = {
    "encodings": ["alibi", "rope", "t5", "sinusoidal"],
    "absolute": ["learned", "sinusoidal", "none"],
    "rope_scaling": [
        "rope",
        {"name": "rope", "scaling": "linear", "factor": 4.0},
        {"name": "rope", "scaling": "yarn", "factor": 4.0},
    ],
    "content": [{"name": "fox", "gate_bias": 4.0}, "path", {"name": "dape", "of": "alibi"}],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)} (default: all)")
    names = parser.parse_args().names
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        parser.error(f"no picture is called {', '.join(unknown)}; there are: {', '.join(PICTURES)}")
    for name in names or PICTURES:
        png = small(content(figure(tuple(PICTURES[name])), ".png"))
        atomic_write(OUT / f"{name}.png", png)
        print(f"{OUT / name}.png: {len(png) / 1000:.0f} kB")


def small(png: bytes) -> bytes:
    """The picture in as many colours as fit."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in (256, 128, 64, 32):
        file = io.BytesIO()
        # Of the methods the one that keeps rare colours: a thin line is its hue.
        few = picture.quantize(colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(file, "PNG", optimize=True)
        if file.tell() <= LARGEST:
            return file.getvalue()
    raise ValueError(f"{file.tell()} bytes in {colours} colours: draw fewer encodings")


if __name__ == "__main__":
    main()
