"""A figure as a page of its own: each panel as SVG over its caption, in the light or dark of the reader."""

from __future__ import annotations

import re
from collections.abc import Sequence

from zoo.figures.style import CAPTION, DARK, FAINT, INK, LIGHT

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; {{ light }} }
@media screen and (prefers-color-scheme: dark) { :root { {{ dark }} } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 "DejaVu Sans", system-ui, sans-serif;
  margin: 0 auto; max-width: 90rem; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin: 2rem 0 0.5rem; }
h3 { font-size: 1rem; margin: 0 0 0.25rem; }
.row { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
figure { border: 1px solid var(--line); border-radius: 6px; margin: 0; max-width: 34rem; padding: 0.75rem; }
figcaption { color: var(--soft); font-size: 0.875rem; }
svg { display: block; height: auto; width: 100%; }
@media print { figure { break-inside: avoid; } }
</style>
</head>
<body>
<main>
<h1>{{ title }}</h1>
{% for heading, panels in sections %}
<section>
<h2>{{ heading }}</h2>
<div class="row">
{% for name, caption, svg in panels %}
<figure>{% if name %}<h3>{{ name }}</h3>{% endif %}{{ svg | themed | safe }}
<figcaption>{{ caption }}</figcaption></figure>
{% endfor %}
</div>
</section>
{% endfor %}
</main>
</body>
</html>
"""
COLOUR = re.compile(r"#[0-9a-f]{6}\b(?=[;\"'])")
PAPER = "#ffffff", "#16181d"
THEMED = {
    PAPER[0]: ("paper", *PAPER),
    INK: ("ink", "#1f1f1f", "#eceef2"),
    CAPTION: ("soft", "#4a4a4a", "#c3c8d2"),
    FAINT: ("faint", "#6b6b6b", "#9aa1ad"),
    "#e6e6e6": ("line", "#e6e6e6", "#343944"),
    **{light: (f"hue-{n}", light, dark) for n, (light, dark) in enumerate(zip(LIGHT, DARK, strict=True))},
}
"""Colours of the drawing, with what a page makes of them: its variable, in light and in dark."""


def page(title: str, sections: Sequence[tuple[str, Sequence[tuple[str, str, str]]]]) -> str:
    """The page of sections, each a heading with (name, caption, `<svg>` element) of its pictures."""
    from jinja2 import Environment

    environment = Environment(autoescape=True)
    environment.filters["themed"] = themed
    made = environment.from_string(TEMPLATE)
    values = {
        name: " ".join(f"--{one[0]}: {one[1 + index]};" for one in THEMED.values())
        for index, name in enumerate(("light", "dark"))
    }
    return made.render(title=title, sections=sections, **values)


def themed(svg: str) -> str:
    """A drawing whose colours are variables of the page, each with the colour itself where it has none."""
    return COLOUR.sub(lambda found: _variable(found[0]), svg)


def _variable(colour: str) -> str:
    if colour in THEMED:
        return f"var(--{THEMED[colour][0]}, {colour})"
    for number, hue in enumerate(LIGHT):
        # A shade of a hue: mixed with black it is nearer to the ink, with white nearer to the paper.
        own, full = _channels(colour), _channels(hue)
        for name, end in (("ink", 0), ("paper", 255)):
            shares = [(end - a) / (end - b) for a, b in zip(own, full, strict=True) if abs(end - b) > 60]
            share = sum(shares) / len(shares) if shares else 0
            mixed = [end + share * (b - end) for b in full]
            if 0.3 < share < 1 and max(abs(a - b) for a, b in zip(own, mixed, strict=True)) < 2:
                return f"color-mix(in srgb, var(--hue-{number}) {share:.0%}, var(--{name}))"
    return colour


def _channels(colour: str) -> list[int]:
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
