"""The look of figures: the colour, dash and marker of each encoding, the same in every figure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

from zoo.errors import InputError, hint

HUES = ("#698ffb", "#c90b00", "#0d715f", "#ef4db1", "#bb8c3d", "#912ad9")
"""Distinct with every kind of colour vision, with a contrast of 3 on white paper and on a dark page."""
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 4), (2, 3), (9, 3, 2, 3))
"""Lengths of strokes and gaps, in pixels of a line of width 2."""
MARKERS = ("o", "s", "^", "D", "v", "P")
"""As matplotlib names them."""
FIRST = ("rope", "none", "alibi", "sinusoidal", "learned", "t5")
"""The encodings compared most often have the six hues in this order."""
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
"""Of files: nothing that depends on the day."""


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


# From one to the next hue and marker change; after the sixth the dash changes too.
STYLES = tuple(
    Style(
        HUES[n % len(HUES)],
        DASHES[n // len(HUES) % len(DASHES)],
        MARKERS[(n + n // len(HUES)) % len(MARKERS)],
    )
    for n in range(72)
)


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """The style of each curve of a figure, by label, in the order of the labels.

    It depends on the encoding's name alone as long as no other label of the figure has the same hue. Of two
    that do, a plugin, else the one in `FIRST`, else the first by name, keeps it. Up to six curves have six
    hues, up to 72 curves have 72 styles.
    """
    from zoo import registry

    labels, given = list(dict.fromkeys(labels)), {}
    own = {name for name, one in registry.encodings.all().items() if one.builtin}
    names = {label: re.split(r"[ +(]", label)[0] for label in labels}
    for label in sorted(labels, key=lambda label: (names[label] in own, label not in FIRST, label)):
        name = names[label]
        start = FIRST.index(name) if name in FIRST else crc32(name.encode()) % len(STYLES)
        order = [*STYLES[start:], *STYLES[:start]]
        taken, hues = set(given.values()), {style.color for style in given.values()}
        free = [style for style in order if style not in taken] or order
        given[label] = next((style for style in free if style.color not in hues and not style.dash), free[0])
    return {label: given[label] for label in labels}


def check_panels(asked: Iterable[str], there: Iterable[str]) -> None:
    """Raise InputError for a name of `--panels` that a figure does not have."""
    there = list(dict.fromkeys(there))
    for name in asked:
        if name not in there:
            raise InputError(f"--panels: no panel {name!r}; {hint(name, there)}")
