"""One self-contained HTML document: text, tables, SVG pictures and plotly figures.

The document opens from disk and loads nothing: plotly.js is embedded once, where a section has a figure of
plotly. Its security policy forbids every request. Its form is in `page.html`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Union

from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Table:
    """Texts; the name of the columns is the head of the index. `bold` has the (row, column) of the best
    values, `notes` the lines below the table."""

    cells: pd.DataFrame
    caption: str = ""
    bold: frozenset[tuple[int, int]] = frozenset()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """An SVG document, embedded as an image. A screen reader reads its caption."""

    svg: bytes
    caption: str


@dataclass(frozen=True)
class TitledList:
    """Texts that a reader opens by a click on the title, or a warning with a border."""

    title: str
    texts: Sequence[str]
    is_warning: bool = False


Part = Union[str, Table, Picture, TitledList, "Figure", Sequence[str]]
"""A paragraph, one of the classes above, a figure of plotly, or the items of a list."""


@dataclass(frozen=True)
class PageSection:
    """A heading, or an empty text for none, and its parts."""

    heading: str
    parts: Sequence[Part]


def page(title: str, sections: Sequence[PageSection]) -> str:
    """The HTML document; titles and texts are escaped."""
    return _template().render(title=title, sections=sections)


def section_html(section: PageSection) -> str:
    return str(_template().module.section(section))


@cache
def _template() -> Template:
    environment = Environment(loader=PackageLoader("zoo.reports", "."), autoescape=True)
    environment.filters |= {
        "kind": lambda part: type(part).__name__,
        "base64": lambda content: base64.b64encode(content).decode(),
        "plot": _plot,
    }
    environment.globals["plotly_script"] = _plotly_script
    return environment.get_template("page.html")


def _plot(figure: Figure) -> Markup:
    return Markup(figure.to_html(full_html=False, include_plotlyjs=False, config={"responsive": True}))


def _plotly_script() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())
