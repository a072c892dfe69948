"""Panels beside and below each other, as one picture in a file, on a page or in a notebook."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from zoo.figures.panel import Limits, Panel, shared
from zoo.figures.specs import check_suffix
from zoo.figures.style import INK, METADATA, RC
from zoo.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

WIDTH, HEIGHT = 3.9, 3.2
"""Of a panel with its title and caption, in inches."""
LEFT, RIGHT, BOTTOM, TOP = 0.7, 0.16, 0.52, 0.86
"""Around the axes of a panel, in inches: they are the same size in every panel, whatever is written."""
HEAD = 0.3
"""Height of the title, and of the names of the columns, in inches."""
ACROSS = 3
"""Panels beside each other where all are of one thing."""
DPI = {".png": 110, ".svg": 72, ".gif": 64}
WIDEST = 900
"""Of the moving picture, in pixels."""
FRAMES, HOLD, STEP = 10, 2500, 250
"""Of the moving picture: how many, and how long the last one and the others stay, in ms."""
COLOURS = 96
"""Of the moving picture; with more it is too large for a page."""


@dataclass(frozen=True)
class Column:
    """The panels of one thing, such as an encoding or a run, under its name."""

    label: str
    panels: Sequence[Panel]
    color: str = INK
    """Of the name, as in every other figure."""


@dataclass(frozen=True)
class Figure:
    """A figure: one column of panels laid out as a grid, or several beside each other.

    Panels of one key stand in one row, and share the range of their values and of their colours.

    Attributes:
        trained, length: in tokens; a moving picture grows from the one to the other. It does not move
            without them.
    """

    columns: Sequence[Column]
    title: str
    trained: int | None = None
    length: int | None = None

    @property
    def panels(self) -> list[Panel]:
        return [panel for column in self.columns for panel in column.panels]

    @property
    def rows(self) -> list[tuple[str, list[Panel | None]]]:
        """Each key with the panels of the columns; None for a column without it.

        The order is that in which a column has them, as far as the columns agree.
        """
        keys: list[str] = []
        for column in self.columns:
            at = 0
            for panel in column.panels:
                if panel.key in keys:
                    at = keys.index(panel.key) + 1
                else:
                    keys.insert(at, panel.key)
                    at += 1
        found = [{panel.key: panel for panel in column.panels} for column in self.columns]
        return [(key, [panels.get(key) for panels in found]) for key in keys]

    def save(self, path: str | Path) -> Path:
        """Write it, in the format of the suffix (png, svg, gif or html), and give the path back.

        Raises InputError for another suffix.
        """
        path = Path(path)
        check_suffix(path)
        atomic_write(path, self.render(path.suffix.lower()))
        return path

    def render(self, suffix: str) -> bytes:
        """The content of the file: `.png`, `.svg`, `.gif` or `.html`."""
        if suffix == ".html":
            from zoo.figures.page import page

            several = len(self.columns) > 1
            sections = [
                (heading, [
                    (label if several else "", panel.caption, as_element(svg, f"{label}: {panel.title}"))
                    for label, panel, svg in parts
                ])
                for heading, parts in self.parts()
            ]  # fmt: skip
            return page(self.heading(", "), sections).encode()
        import matplotlib

        with matplotlib.rc_context(RC):
            drawing = self.drawing()
            return _moving(drawing, self) if suffix == ".gif" else _still(drawing, suffix)

    def svg(self) -> str:
        """The figure as an `<svg>` element of a page, with what it shows as its name."""
        captions = " ".join(f"{panel.title}: {panel.caption}" for panel in self.panels)
        return as_element(self.render(".svg"), f"{self.heading(', ')}. {captions}")

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x: auto; background: white">{self.svg()}</div>'

    def heading(self, between: str) -> str:
        """The title with the names of the columns."""
        labels = between.join(column.label for column in self.columns)
        return f"{labels}: {self.title}" if self.title else labels

    def parts(self) -> list[tuple[str, list[tuple[str, Panel, bytes]]]]:
        """Every panel as an SVG of its own, without title and caption, on the scales of the figure: a title
        for each row, with the label of each panel's column, the panel and the picture."""
        import matplotlib

        labels = [column.label for column in self.columns]
        with matplotlib.rc_context(RC):
            _, drawn = self._drawn()
            made = []
            for key, row in self.rows:
                limits = shared([panel for panel in row if panel is not None])
                there = [
                    (label, panel, _alone(panel, limits, drawn[label, key].get_ylim()))
                    for label, panel in zip(labels, row, strict=True)
                    if panel is not None
                ]
                made.append((there[0][1].title, there))
        return made

    def drawing(self) -> Drawing:
        """As matplotlib has it."""
        return self._drawn()[0]

    def _drawn(self) -> tuple[Drawing, dict[tuple[str, str], Axes]]:
        """The drawing, and the axes of each panel by label and key."""
        single, across = len(self.columns) == 1, len(self.columns)
        rows = self._packed()
        by_key = {key: [panel for panel in row if panel is not None] for key, row in self.rows}
        if single:
            panels, across = self.panels, min(ACROSS, len(self.panels))
            rows = [panels[start : start + across] for start in range(0, len(panels), across)]
        head = HEAD * (1 if single else 2)
        size = across * WIDTH, len(rows) * HEIGHT + head
        drawing = _sheet(size)
        place = {"ha": "left", "va": "center", "x": 0.1 / size[0]}
        drawing.text(
            y=1 - HEAD / 2 / size[1], s=self.heading(" · "), fontsize=10.5, fontweight="bold", **place
        )
        for index, column in enumerate(() if single else self.columns):
            place["x"] = (index * WIDTH + 0.1) / size[0]
            drawing.text(
                y=1 - HEAD * 1.5 / size[1], s=column.label, fontsize=11, fontweight="bold",
                color=column.color, **place,
            )  # fmt: skip
        found = {}
        for number, row in enumerate(rows):
            for index, panel in enumerate(row):
                if panel is None:
                    continue
                below = size[1] - head - (number + 1) * HEIGHT
                axes = _axes(drawing, index * WIDTH + LEFT, below + BOTTOM, HEIGHT - BOTTOM - TOP)
                panel.draw(axes, shared(by_key[panel.key]))
                found[self.columns[0 if single else index].label, panel.key] = axes
        for key in by_key:
            _share([axes for (_, own), axes in found.items() if own == key])
        return drawing, found

    def _packed(self) -> list[list[Panel | None]]:
        """Rows of cells, in which every key has its own row, and different keys of different columns may
        have the same one: a column keeps its order, and as few cells as can be are empty."""
        packed: list[list[Panel | None]] = []
        ends = [0] * len(self.columns)
        for _, row in self.rows:
            there = [index for index, panel in enumerate(row) if panel is not None]
            at = max(ends[index] for index in there)
            while len(packed) <= at:
                packed.append([None] * len(self.columns))
            for index in there:
                packed[at][index], ends[index] = row[index], at + 1
        return packed


def _sheet(size: tuple[float, float]) -> Drawing:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=size)
    FigureCanvasAgg(drawing)
    return drawing


def _axes(drawing: Drawing, left: float, bottom: float, height: float) -> Axes:
    """Axes of a panel at a place in inches."""
    wide, high = drawing.get_size_inches()
    return drawing.add_axes((left / wide, bottom / high, (WIDTH - LEFT - RIGHT) / wide, height / high))


def _alone(panel: Panel, limits: Limits | None, vertical: tuple[float, float]) -> bytes:
    drawing = _sheet((WIDTH, HEIGHT - TOP + 0.15))
    axes = _axes(drawing, LEFT, BOTTOM, HEIGHT - TOP - BOTTOM)
    panel.draw(axes, limits, captioned=False)
    if axes.axison:
        axes.set_ylim(vertical)
    return _still(drawing, ".svg")


def as_element(svg: bytes, name: str) -> str:
    """An SVG file as an element of a page: without its prologue, its ids its own, with a name for readers."""
    text = svg.decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    # Several of them stand in one page, and each id may be there once.
    own = f"z{crc32(text.encode()):08x}-"
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{own}", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(name)}" ', 1)


def _share(drawn: list[Axes]) -> None:
    """Have all axes of a row the range of all of them."""
    drawn = [axes for axes in drawn if axes.axison]
    if len(drawn) < 2 or len({(axes.get_yscale(), axes.yaxis_inverted()) for axes in drawn}) > 1:
        return
    ends = [axes.get_ylim() for axes in drawn]
    inverted = drawn[0].yaxis_inverted()
    low, high = min(map(min, ends)), max(map(max, ends))
    for axes in drawn:
        axes.set_ylim((high, low) if inverted else (low, high))


def _still(drawing: Drawing, suffix: str) -> bytes:
    content = io.BytesIO()
    drawing.savefig(content, format=suffix[1:], dpi=DPI[suffix], metadata=METADATA.get(suffix))
    return content.getvalue()


def _moving(drawing: Drawing, figure: Figure) -> bytes:
    """A GIF that uncovers what is drawn, from the trained length to the whole one."""
    from matplotlib.patches import Rectangle
    from PIL import Image

    drawing.set_dpi(min(DPI[".gif"], WIDEST / drawing.get_figwidth()))
    covers = []
    for axes in drawing.findobj(lambda one: getattr(one, "get_label", str)() in ("over x", "over xy")):
        (left, right), (bottom, top) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
        look = {"facecolor": "white", "edgecolor": "none", "zorder": 4.5}
        covers.append((axes.add_patch(Rectangle((right, bottom), 0, top - bottom, **look)), right, "x"))
        if axes.get_label() == "over xy":
            covers.append((axes.add_patch(Rectangle((left, top), right - left, 0, **look)), top, "y"))
    first, last = figure.trained or 0, figure.length or figure.trained or 0
    count = FRAMES if last > first else 1
    frames = []
    for step in range(count):
        length = last if step == count - 1 else first + (last - first) * step / (count - 1)
        for cover, end, way in covers:
            start = end if step == count - 1 else min(length, end)
            if way == "x":
                cover.set_x(start)
                cover.set_width(end - start)
            else:
                cover.set_y(start)
                cover.set_height(end - start)
        drawing.canvas.draw()
        picture = Image.frombuffer("RGBA", drawing.canvas.get_width_height(), drawing.canvas.buffer_rgba())
        # Of the methods the one that keeps rare colours: a thin line is its hue.
        frames.append(picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=0))
    content = io.BytesIO()
    durations = [STEP] * (count - 1) + [HOLD]
    frames[0].save(
        content, "GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True
    )
    return content.getvalue()
