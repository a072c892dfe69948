"""One self-contained HTML document: text, tables, SVG pictures and plotly figures.

The document opens from disk and loads nothing: plotly.js is embedded once, where a section has a figure of
plotly. Its security policy forbids every request.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

GENERATOR = "positional-encoding-zoo"
"""The generator that each page names in its first 2,000 characters."""
POLICY = "default-src 'unsafe-inline' 'unsafe-eval' data: blob:; base-uri 'none'; form-action 'none'"
# Pictures and plots are drawn on white; in the dark theme they are inverted, with their hues kept.
STYLE = """
:root { --paper: #fff; --raised: #f3f5f8; --ink: #16191f; --soft: #4c535e; --rule: #d3d8e0; --link: #0b57c2;
  --warning: #a3150a; color-scheme: light dark; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #141414; --raised: #24272c; --ink: #eceff4; --soft: #b0b8c5; --rule: #39414d;
    --link: #8fbcff; --warning: #ff9d92; }
  figure > :is(img, .plot) { filter: invert(0.92) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem clamp(0.75rem, 3vw, 2rem) 3rem;
  background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.4rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
p, ul { margin: 0.4rem 0; max-width: 75ch; }
a { color: var(--link); }
figure { margin: 0.75rem 0; }
figcaption, .notes, caption { font-size: 0.875rem; color: var(--soft); }
.plot { background: #fff; width: 100%; }
img { background: #fff; max-width: 100%; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.875rem; overflow-wrap: normal; }
caption { text-align: left; }
th, td { padding: 0.3rem 0.6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--rule); }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
pre { background: var(--raised); padding: 0.7rem 0.9rem; white-space: pre-wrap; font-size: 0.875rem; }
summary { font-weight: 600; cursor: pointer; }
.warning { color: var(--warning); border: 2px solid var(--warning); padding: 0.5rem 0.9rem; }
@media print { .scroll { overflow: visible; } table { font-size: 7pt; } }
"""


@dataclass(frozen=True)
class Table:
    """Rows of texts; the first cell of each row is its name. `bold` has the (row, column) of the best values,
    `notes` the lines below the table."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    bold: frozenset[tuple[int, int]] = frozenset()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """An SVG document, embedded as an image. A screen reader reads its caption."""

    svg: bytes
    caption: str


@dataclass(frozen=True)
class Code:
    """Text in a fixed-width font, as a command or a recipe."""

    text: str


@dataclass(frozen=True)
class Folded:
    """Parts that a reader opens by a click on `summary`."""

    summary: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Warned:
    """A list of reasons not to trust the page, with a border."""

    text: str
    reasons: Sequence[str]


Part = Union[str, Table, Picture, Code, Folded, Warned, "Figure", Sequence[str]]
"""A paragraph, one of the classes above, a figure of plotly, or the items of a list."""


@dataclass(frozen=True)
class Section:
    """A heading, or an empty text for none, and its parts."""

    heading: str
    parts: Sequence[Part]


def page(title: str, sections: Iterable[Section]) -> str:
    """The HTML document; titles and texts are escaped."""
    body = "\n".join(map(section_html, sections))
    script = ""
    if 'class="plot"' in body:
        from plotly.offline import get_plotlyjs

        script = f"<script>{get_plotlyjs()}</script>\n"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="generator" content="{GENERATOR}">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n{script}'
        f"</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def section_html(section: Section) -> str:
    heading = f"<h2>{escape(section.heading)}</h2>\n" if section.heading else ""
    return f"<section>\n{heading}{_parts(section.parts)}\n</section>"


def _parts(parts: Iterable[Part]) -> str:
    return "\n".join(map(_part, parts))


def _part(part: Part) -> str:
    match part:
        case str():
            return f"<p>{escape(part)}</p>"
        case Table():
            return table_html(part)
        case Picture(svg, caption):
            source = base64.b64encode(svg).decode()
            image = f'<img alt="{escape(caption)}" src="data:image/svg+xml;base64,{source}">'
            return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"
        case Code(text):
            return f"<pre><code>{escape(text)}</code></pre>"
        case Folded(summary, parts):
            return f"<details><summary>{escape(summary)}</summary>\n{_parts(parts)}\n</details>"
        case Warned(text, reasons):
            return f'<div class="warning"><strong>{escape(text)}</strong>{_list(reasons)}</div>'
        case list() | tuple():
            return _list(part)
    plot = part.to_html(full_html=False, include_plotlyjs=False, config={"responsive": True})
    return f'<figure><div class="plot">{plot}</div></figure>'


def table_html(table: Table) -> str:
    """A table that scrolls sideways within the page."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    rows = []
    for index, (name, *cells) in enumerate(table.rows):
        texts = [
            f"<td><b>{escape(cell)}</b></td>" if (index, column) in table.bold else f"<td>{escape(cell)}</td>"
            for column, cell in enumerate(cells)
        ]
        rows.append(f"<tr><th>{escape(name)}</th>{''.join(texts)}</tr>")
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    notes = "".join(f'<p class="notes">{escape(note)}</p>' for note in table.notes)
    body = "\n".join(rows)
    return (
        f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>'
        f"</table></div>{notes}"
    )


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
