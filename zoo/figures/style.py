"""How the project draws, in pictures and on pages alike: the colour, dash and mark of each encoding, which
are told apart together, since none of them serves every reader; the ink and the type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

LIGHT = ("#2222af", "#b4360d", "#0d7570", "#eb2dbd", "#b98600", "#208ffc")
"""Hues on white paper; tests/figures/test_style.py checks that they are distinct."""
DARK = ("#8866f6", "#cd6107", "#4cca90", "#c39bff", "#f8e53b", "#a3efff")
"""The same hues in the dark theme of the page."""
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 4), (2, 3), (9, 3, 2, 3))
"""Lengths of strokes and gaps, in pixels of a line of width 2."""
MARKS = {
    "o": "M4 0A4 4 0 1 1 -4 0A4 4 0 1 1 4 0Z",
    "s": "M-3.6 -3.6H3.6V3.6H-3.6Z",
    "^": "M0 -4.8L4.6 3.4H-4.6Z",
    "D": "M0 -5.2L5.2 0L0 5.2L-5.2 0Z",
    "v": "M0 4.8L4.6 -3.4H-4.6Z",
    "P": "M-1.7 -5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z",
}
"""Matplotlib's names of the marks, with their outlines as SVG paths around the middle, in pixels."""
FIRST = ("rope", "none", "alibi", "sinusoidal", "learned", "t5")
"""Those compared most have six hues, and always the same ones."""
DRAWING = ("matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg")
"""Modules that are imported before signals may raise: an import that is cut short leaves a broken module."""
INK, CAPTION, FAINT = "#333333", "#555555", "#8a8a8a"
"""Text, captions, and what stands back: axes, ticks, the mark of the trained length."""
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
    # The same numbers are the same bytes, and a text can be searched and read aloud.
    "svg.fonttype": "none",
    "svg.hashsalt": "positional-encoding-zoo",
    "path.simplify": False,
}
METADATA = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}
"""Of files: without what differs from one day to the next."""


@dataclass(frozen=True)
class Style:
    """Indices into `LIGHT` and `DARK`, into `DASHES`, and of the mark."""

    hue: int
    dash: int
    mark: int

    @property
    def color(self) -> str:
        return LIGHT[self.hue]

    @property
    def marker(self) -> str:
        return list(MARKS)[self.mark]

    @property
    def linestyle(self) -> str | tuple[int, tuple[float, ...]]:
        """As matplotlib takes it, in points."""
        return (0, tuple(part / 2 for part in DASHES[self.dash])) if self.dash else "-"

    @property
    def classes(self) -> str:
        """As page.css has them."""
        return f"hue-{self.hue} dash-{self.dash}"


# From one to the next hue and mark change; the sixth of each is followed by the first and another dash.
STYLES = tuple(
    Style(n % len(LIGHT), n // len(LIGHT) % len(DASHES), (n + n // len(LIGHT)) % len(MARKS))
    for n in range(72)
)


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """The style of each curve of a report, by label, in the order of the labels.

    It depends on the label alone as long as no other label of the report claims the same hue; of two that
    do, the one of `FIRST`, else the first by name, has it. Of up to six curves no two share a hue, of up to
    72 no two the style.
    """
    labels, given = list(dict.fromkeys(labels)), {}
    for label in sorted(labels, key=lambda label: (_preferred(label)[0], label)):
        start = _preferred(label)[1]
        order = [*STYLES[start:], *STYLES[:start]]
        taken, hues = set(given.values()), {style.hue for style in given.values()}
        free = [style for style in order if style not in taken] or order
        given[label] = next((style for style in free if style.hue not in hues and not style.dash), free[0])
    return {label: given[label] for label in labels}


def _preferred(label: str) -> tuple[bool, int]:
    """Whether it is none of `FIRST`, and the index of the style that it has where that is free."""
    if label in FIRST:
        return False, FIRST.index(label)
    return True, crc32(label.encode()) % len(STYLES)


def css() -> str:
    """Hues and dashes for the page: `.hue-0 { --hue: var(--hue-0); }`."""
    hues = "".join(f".hue-{n} {{ --hue: var(--hue-{n}); }}\n" for n in range(len(LIGHT)))
    dashes = "".join(
        f".dash-{n} {{ --dash: {' '.join(map(str, one))}; }}\n" for n, one in enumerate(DASHES) if one
    )
    return f"{_root(LIGHT)}@media screen and (prefers-color-scheme: dark) {{ {_root(DARK)}}}\n{hues}{dashes}"


def _root(hues: Iterable[str]) -> str:
    return f":root {{ {' '.join(f'--hue-{n}: {hue};' for n, hue in enumerate(hues))} }}\n"
