"""Pictures of an encoding for its page and for the overview."""

from __future__ import annotations

import html
import io
from typing import TYPE_CHECKING, Any

from zoo.figures.specs import LENGTH, TRAINED
from zoo.recipe.encoding import encoding_label

if TYPE_CHECKING:
    from zoo.figures.figure import Figure

SMALL = (2.4, 1.6)
"""A small picture, in inches."""
DPI = 130


def figure_of(spec: Any) -> Figure:
    """The figure of an encoding, as `zoo draw` makes it."""
    from zoo.figures.encoding import RANDOM, build, panels_of  # imports torch
    from zoo.figures.figure import Column, Figure
    from zoo.figures.style import styles

    stack, drawn = build(spec, trained=TRAINED)
    label = encoding_label(spec)
    color = styles([label])[label].color
    note = RANDOM if drawn else ""
    panels = panels_of(stack, length=LENGTH, trained=TRAINED, color=color, note=note)
    return Figure([Column(label, panels, color)], "", trained=TRAINED, length=LENGTH)


def small_picture_of(figure: Figure) -> bytes:
    """The first panel of a figure without its words, as PNG."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing

    from zoo.figures.style import RC

    with rc_context(RC):
        drawing = Drawing(figsize=SMALL, layout="constrained")
        FigureCanvasAgg(drawing)
        axes = drawing.add_subplot()
        figure.panels[0].draw(axes, captioned=False)
        # At this size words and scales are specks.
        for one in drawing.axes:
            if one.get_label() == "<colorbar>":
                one.remove()
                continue
            one.set(xlabel="", ylabel="", title="")
            one.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
            if one.get_legend():
                one.get_legend().remove()
        content = io.BytesIO()
        drawing.savefig(content, format="png", dpi=DPI, metadata={"Software": None})
        return content.getvalue()


def gallery_of(figure: Figure, folder: str) -> tuple[str, dict[str, bytes]]:
    """Every panel of a figure as Markdown, with its title and caption, and their files by path."""
    shown, files = [], {}
    for _, row in figure.parts():
        for _, panel, svg in row:
            title, caption = html.escape(panel.title), html.escape(panel.caption)
            path = f"pictures/{folder}/{panel.key}.svg"
            files[path] = svg
            shown.append(
                f'<figure><img src="../{path}" alt="{title}: {caption}" loading="lazy">'
                f"<figcaption><strong>{title}.</strong> {caption}</figcaption></figure>"
            )
    return '<div class="figures" markdown="0">\n' + "\n".join(shown) + "\n</div>", files
