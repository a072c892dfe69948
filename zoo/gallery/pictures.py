"""Pictures of an encoding for its page and for the overview."""

from __future__ import annotations

import html
import io
from collections.abc import Mapping
from typing import Any

LENGTH, TRAINED = 256, 128
"""Tokens that the pictures span, and where training is taken to have ended."""
SMALL = (2.4, 1.6)
"""A small picture, in inches."""
DPI = 130


def pictures_of(spec: Any) -> list[tuple[str, str, str, bytes]]:
    """Key, title, caption and SVG of each panel of an encoding; none where it has no picture."""
    try:
        from zoo.figures.encoding import draw_encodings
    except ImportError:
        return []
    figure = draw_encodings([spec], length=LENGTH, trained=TRAINED)
    return [
        (panel.key, panel.title, panel.caption, svg) for _, row in figure.parts() for _, panel, svg in row
    ]


def small_picture_of(spec: Any) -> bytes | None:
    """The first panel of an encoding without its words, as PNG."""
    try:
        from zoo.figures.encoding import panels_of
    except ImportError:
        return None
    panels = panels_of(spec, length=LENGTH, trained=TRAINED)
    if not panels:
        return None
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from zoo.figures.style import RC

    with rc_context(RC):
        drawing = Figure(figsize=SMALL, layout="constrained")
        FigureCanvasAgg(drawing)
        axes = drawing.add_subplot()
        panels[0].draw(axes, captioned=False)
        axes.set(xlabel="", ylabel="", xticks=[], yticks=[])
        content = io.BytesIO()
        drawing.savefig(content, format="png", dpi=DPI, metadata={"Software": None})
        return content.getvalue()


def gallery_of(pictures: list[tuple[str, str, str, bytes]], folder: str) -> tuple[str, Mapping[str, bytes]]:
    """The pictures as Markdown, each with its title and caption, and their files by path."""
    shown, files = [], {}
    for key, title, caption, svg in pictures:
        path = f"pictures/{folder}/{key}.svg"
        files[path] = svg
        shown.append(
            f'<figure markdown="0"><img src="../{path}" alt="{html.escape(title)}: {html.escape(caption)}" '
            f'loading="lazy"><figcaption><strong>{html.escape(title)}.</strong> {html.escape(caption)}'
            "</figcaption></figure>"
        )
    return ('<div class="figures" markdown="0">\n' + "\n".join(shown) + "\n</div>" if shown else ""), files
