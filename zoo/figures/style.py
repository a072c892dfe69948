"""The look of figures: the colour, dash and marker of each encoding, the same in every figure."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from zoo.errors import InputError, hint

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as Interactive

HUES = (
    "#2097ff", "#9e8e8a", "#097094", "#dc57d6", "#754a23", "#950dfe", "#0e3900", "#ff2508", "#570b5a",
    "#b41e67", "#4000c7",
)  # fmt: skip
"""Distinct with every kind of colour vision, with a contrast of 3 on white; dark pages invert figures."""
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 4), (2, 3), (9, 3, 2, 3))
"""Lengths of strokes and gaps, in pixels of a line of width 2."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*")
"""As matplotlib names them."""
FIRST = ("rope", "none", "alibi", "sinusoidal", "learned", "t5", "kerple", "fire", "fox", "cope")
"""The most used encodings have the first hues in every figure; a plugin has the last one."""
FAMILIES = (
    "rotary", "absolute", "content", "bias", "contextual", "weights", "position ids", "schedule",
)  # fmt: skip
"""The family of an encoding has the hue at its place."""
INK, CAPTION, FAINT, GRID = "#333333", "#555555", "#8a8a8a", "#e6e6e6"
"""Text, captions, the background of a plot (axes, ticks, the mark of the trained length), and its grid."""
RC = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.7,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # A dollar in the name of an encoding is a dollar.
    "text.parse_math": False,
    # The same numbers give the same bytes, and text in an SVG can be searched.
    "svg.fonttype": "none",
    "svg.hashsalt": "positional-encoding-zoo",
    "pdf.fonttype": 42,
    "path.simplify": False,
}
METADATA = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Metadata of files, without anything that depends on the day."""


@dataclass(frozen=True)
class Style:
    """One of `HUES`, `DASHES` and `MARKERS` each."""

    color: str
    dash: tuple[float, ...]
    marker: str

    @property
    def linestyle(self) -> str | tuple[int, tuple[float, ...]]:
        """As matplotlib takes it, in points."""
        return (0, tuple(part / 2 for part in self.dash)) if self.dash else "-"

    @property
    def line(self) -> dict[str, str]:
        """As plotly takes it."""
        return {"color": self.color, "dash": ",".join(f"{part}px" for part in self.dash) or "solid"}


# From one to the next hue and marker change; after the last hue the dash and the pairs change too.
STYLES = tuple(
    Style(hue, DASHES[turn % len(DASHES)], MARKERS[(n + turn) % len(MARKERS)])
    for turn in range(8)
    for n, hue in enumerate(HUES)
)


def family(spec: Any) -> str:
    """The family of an encoding, or of the first one that it is built of; empty of an unknown plugin."""
    from zoo import registry

    while not isinstance(spec, str):
        spec = spec[0] if isinstance(spec, list) else spec.get("of") or spec.get("pattern") or spec["name"]
    return registry.encodings.describe(spec).family if spec in registry.encodings.names() else ""


def family_color(family: str) -> str:
    return HUES[FAMILIES.index(family)] if family in FAMILIES else INK


def styles(labels: Iterable[str], fixed: Sequence[str] = ()) -> dict[str, Style]:
    """The style of each curve of a figure, by label, in the order of the labels.

    An encoding in `FIRST` has the same in every figure, and so has a single plugin. The style of another
    depends on its name alone unless its hue is taken. Up to eleven curves have eleven hues.

    Args:
        fixed: labels that have the same style in every figure, too.
    """
    from zoo import registry

    labels, fixed = list(dict.fromkeys(labels)), [*FIRST, *fixed]
    given = {label: STYLES[fixed.index(label)] for label in labels if label in fixed}
    own = {name for name, one in registry.encodings.all().items() if one.builtin}
    names = {label: re.split(r"[ +(]", label)[0] for label in labels}
    for label in sorted({*labels} - {*fixed}, key=lambda label: (names[label] in own, label)):
        name = names[label]
        start = crc32(name.encode()) % len(STYLES) if name in own else len(FIRST)
        start = FIRST.index(name) if name in FIRST else start
        order = [*STYLES[start:], *STYLES[:start]]
        taken, hues = set(given.values()), {style.color for style in given.values()}
        free = [style for style in order if style not in taken] or order
        given[label] = next((style for style in free if style.color not in hues and not style.dash), free[0])
    return {label: given[label] for label in labels}


def content(figure: Figure, suffix: str, dpi: int = 110) -> bytes:
    """A figure as a file: `.png`, `.svg` or `.pdf`."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context(RC):
        figure.savefig(file, format=suffix[1:], dpi=dpi, metadata=METADATA[suffix])
    return file.getvalue()


def stacked(heights: Sequence[float], spacing: float) -> Interactive:
    """An empty figure of plotly with plots below each other."""
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=len(heights), shared_xaxes=True, row_heights=heights, vertical_spacing=spacing
    )
    figure.update_layout(
        plot_bgcolor="white", margin={"l": 60, "r": 10, "t": 30, "b": 10}, font={"color": INK},
        legend={"orientation": "h", "yanchor": "top", "y": -0.16},
    )  # fmt: skip
    figure.update_xaxes(gridcolor=GRID).update_yaxes(gridcolor=GRID, automargin=True)
    return figure


def check_panels(asked: Iterable[str], there: Iterable[str]) -> None:
    """Raise InputError for a name of `--panels` that a figure does not have."""
    there = list(dict.fromkeys(there))
    for name in asked:
        if name not in there:
            raise InputError(f"--panels: no panel {name!r}; {hint(name, there)}")
