"""Tables and figures as the pages have them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from matplotlib.figure import Figure

from zoo.figures.style import METADATA

DASH = "–"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def and_list(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=200, metadata=METADATA[".png"])
    return content.getvalue()
