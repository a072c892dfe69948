"""A comparison as one HTML document: curves to hover over, lines to switch on and off, and the tables.

The document loads nothing: style, script and data are in it, and its own security policy forbids the browser
to fetch anything or to run any other script. It can be mailed, committed and opened from a disk.

Why the plot is drawn by 370 lines of our own: with everything inlined, a plot of twelve curves is a page of
4.8 MB by plotly 7.1, of 1.3 MB by bokeh 3.9 and of 0.9 MB by Vega-Altair 6.3; none of them follows the
reader's light or dark, or has lines that the keyboard can switch, and uPlot draws on a canvas, which has no
text to read. The markup is written by Jinja, which escapes whatever a label or a folder's name may hold.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from zoo.errors import printable
from zoo.figures.style import MARKS, css, styles
from zoo.reports.details import Details
from zoo.reports.formatting import display_name, value_text
from zoo.reports.plot_page.plot_data import differences_plot, values_plot
from zoo.reports.report import Panel, Report
from zoo.reports.tables import costs_table, differences_table, order_text, spread_text, values_table

SPACE = "\u00a0"
"""A blank at which no line ends; of ours."""
SCRIPTS = ("scales.js", "draw.js", "tooltip.js", "switches.js")
GENERATOR = "positional-encoding-zoo"
"""By which a page of ours is known, in its first 2,000 characters."""
ALL = 10**6
"""Lengths in a table: a page has room for all, as its tables scroll."""


def page(report: Report, details: Details | None = None) -> str:
    """The HTML document of a report, some 30 KB and its numbers.

    Args:
        details: what is said of each run beside its results; only in `zoo report`.
    """
    looks = styles(report.labels)
    refused = bool(report.differences)
    plots = []
    for panel in report.panels:
        plots += [values_plot(panel, looks, refused), differences_plot(panel, looks, refused)]
    style, script = css() + _asset("page.css"), "\n".join(_asset(name) for name in SCRIPTS)
    return (
        environment()
        .from_string(_asset("page.html"))
        .render(
            report=report,
            verdict=report.verdict.removeprefix("Verdict: "),
            panels=[_panel(panel) for panel in report.panels],
            costs=costs_table(report),
            order=order_text(report),
            looks=looks,
            indices={label: index for index, label in enumerate(looks)},
            data={"plots": plots},
            marks=list(MARKS.values()),
            style=style,
            script=script,
            policy=_policy(style, script),
            generator=GENERATOR,
            details=_details(details),
        )
    )


def _details(details: Details | None) -> Markup:
    if details is None:
        return Markup()
    return Markup(environment().from_string(_asset("details.html")).render(details=details))


def environment() -> Environment:
    """Of templates that escape whatever a report holds."""
    return Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, finalize=_shown,
    )  # fmt: skip


def _panel(panel: Panel) -> dict[str, object]:
    """What page.html needs to know of a panel."""
    parameters = (
        f"{display_name(name)}{SPACE}{value_text(value)}" for name, value in panel.parameters.items()
    )
    spread = spread_text(panel).replace("(low–high):", "faint edges:")
    return {
        "title": display_name(panel.protocol),
        "parameters": ", ".join(parameters),
        "explanation": panel.explanation,
        "measure": display_name(panel.measure),
        "better": "lower" if panel.lower_is_better else "higher",
        "axis": panel.axis,
        "trained": " or ".join(map(str, panel.train_lengths)),
        "spread": spread[0].upper() + spread[1:],
        "rings": any(curve.seeds > 1 for curve in panel.curves),
        "curves": panel.curves,
        "reference": panel.reference,
        "values": values_table(panel, ALL),
        "differences": differences_table(panel, ALL),
    }


def _shown(value: object) -> object:
    """A value as the page may have it: what is acted upon and not shown is escaped; markup of ours is not."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return SPACE.join(map(printable, value.split(SPACE)))


@cache
def _asset(name: str) -> str:
    return files("zoo.reports.plot_page").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """What a browser may do with the page: run this script, apply this style, and fetch nothing."""
    return (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
