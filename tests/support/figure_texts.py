"""The texts of a matplotlib figure, as they are drawn."""

from itertools import combinations

import pytest
from matplotlib.text import Text


def text_boxes(figure):
    """The text and the extent of everything that is written, and the extent of the page, in pixels."""
    drawn, draw = {}, Text.draw

    def seen(text, renderer):
        drawn[id(text)] = text
        draw(text, renderer)

    figure.canvas.draw()  # which settles the layout
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", seen)
        figure.canvas.draw()
    written = [one for one in drawn.values() if one.get_text().strip() and one.get_visible()]
    return [(one.get_text(), Text.get_window_extent(one)) for one in written]


def text_faults(figure):
    """The texts that are cut off, and the pairs that overlap."""
    boxes, page = text_boxes(figure), figure.bbox.padded(0.5)
    cut = [text for text, box in boxes if not (page.contains(*box.min) and page.contains(*box.max))]
    inner = [(text, box.padded(-1)) for text, box in boxes]
    return cut + [(one, other) for (one, a), (other, b) in combinations(inner, 2) if a.overlaps(b)]
