"""How curves are told apart: by hue, dash and mark together, since none of them serves every reader."""

from __future__ import annotations

from dataclasses import dataclass

HUES, DASHES = 6, 4
"""As many as page.css has of each."""

MARKS = {
    "mark-0": "M4 0A4 4 0 1 1 -4 0A4 4 0 1 1 4 0Z",
    "mark-1": "M-3.6 -3.6H3.6V3.6H-3.6Z",
    "mark-2": "M0 -4.8L4.6 3.4H-4.6Z",
    "mark-3": "M0 -5.2L5.2 0L0 5.2L-5.2 0Z",
    "mark-4": "M-1.7 -5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z",
}
"""Outlines of the marks around their middle, as SVG paths, in pixels."""


@dataclass(frozen=True)
class Look:
    """The CSS classes of a curve, and the name of its mark."""

    classes: str
    mark: str


def look(index: int) -> Look:
    """The look of the curve with this index. The first 60 differ; the first six are solid, of six hues."""
    dash = index // HUES % DASHES
    # Of five marks and six hues, so that both change from one curve to the next and no pair comes twice.
    return Look(f"hue-{index % HUES} dash-{dash}", f"mark-{index % len(MARKS)}")
