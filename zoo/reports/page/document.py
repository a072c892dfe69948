"""A comparison as one HTML document: curves to hover over, lines to switch on and off, and the tables.

The document loads nothing: style, script and data are in it, and its own security policy forbids the browser
to fetch anything or to run any other script. It can be mailed, committed and opened from a disk.

Why the plot is drawn by 370 lines of our own: with everything inlined, a plot of twelve curves is a page of
4.8 MB by plotly 7.1, of 1.3 MB by bokeh 3.9 and of 0.9 MB by Vega-Altair 6.3. On a phone the legend of the
first and the last leaves the plot a fifth of the width; none of them follows the reader's light or dark, or
has lines that the keyboard can switch. Legend, themes, cut curves and the text for screen readers would have
been our own in any case, and what is left for a library is two axes and a line. uPlot is small, but draws on
a canvas, which has no text to read. The markup is written by Jinja, which escapes whatever a label or the
name of a folder may hold.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from zoo.errors import printable
from zoo.reports.page.plot_data import drawn
from zoo.reports.page.table_data import cost_table, panel_table
from zoo.reports.report import Comparison
from zoo.reports.style import MARKS
from zoo.reports.tables import order_text

SPACE = "\u00a0"
"""A blank at which no line ends; of ours."""
SCRIPTS = ("scales.js", "draw.js", "tooltip.js", "switches.js")


def page(comparison: Comparison) -> str:
    """The HTML document of a comparison, some 30 KB and its numbers."""
    labels = dict.fromkeys(curve.label for panel in comparison.panels for curve in panel.curves)
    indices = {label: index for index, label in enumerate(labels)}
    refused = bool(comparison.differences)
    panels = [panel_table(panel, indices) for panel in comparison.panels]
    plots = [drawn(number, panel, indices, refused) for number, panel in enumerate(comparison.panels)]
    style, script = _asset("page.css"), "\n".join(_asset(name) for name in SCRIPTS)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, finalize=_shown,
    )  # fmt: skip
    return environment.from_string(_asset("page.html")).render(
        title=comparison.title,
        differences=comparison.differences,
        remarks=comparison.remarks,
        verdict=comparison.verdict.removeprefix("Verdict: "),
        about=comparison.about,
        panels=panels,
        costs=cost_table(comparison, indices),
        order=order_text(comparison),
        command=comparison.command,
        data={"panels": plots},
        marks=MARKS,
        style=style,
        script=script,
        policy=_policy(style, script),
    )


def _shown(value: object) -> object:
    """A value as the page may have it: what is acted upon and not shown is escaped; markup of ours is not."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return SPACE.join(map(printable, value.split(SPACE)))


@cache
def _asset(name: str) -> str:
    return files("zoo.reports.page").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """What a browser may do with the page: run this script, apply this style, and fetch nothing."""
    return (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
