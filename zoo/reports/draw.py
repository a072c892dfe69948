"""`zoo draw`: figures of encodings and of trained models, as files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.console import waiting
from zoo.errors import InputError, Problem, collect, hint
from zoo.figures import encoding, grid, model
from zoo.figures.grid import Columns
from zoo.figures.style import check_panels, content
from zoo.files import atomic_write
from zoo.recipe.tree import read_value
from zoo.reports.page import PageSection, Picture, page

SUFFIXES = (".png", ".svg", ".pdf", ".html")
MOST = 8
"""Encodings in one figure."""


def draw_encodings(
    what: Sequence[str], out: Path | None, panels: Sequence[str] | None = None, **sizes: int
) -> None:
    """Draw encodings side by side into a file.

    Args:
        what: see `read_specs`.
        out: a .png, .svg, .pdf or .html; by default a PNG with the names in the working folder.
        panels: the keys of the panels to draw; by default all.
        sizes: the fields of `zoo.figures.encoding.Sizes`.
    """
    check_suffix(out)
    at = encoding.Sizes(**sizes)
    _write(encoding.columns(read_specs(what), at), at.title, out, panels)


def draw_runs(
    paths: Sequence[Path],
    out: Path | None,
    panels: Sequence[str] | None = None,
    **options: Any,
) -> None:
    """Draw trained models side by side into a file.

    Args:
        out, panels, options: as of `draw_encodings` and `zoo.figures.model.columns`.
    """
    check_suffix(out)
    found = model.columns(*paths, log=lambda note: print(note, file=sys.stderr), **options)
    _write(found, model.TITLE, out, panels, [one.absolute().name for one in paths])


def is_run(text: str) -> bool:
    """Whether an argument is the path of a run: not a plugin's file, and not the name of an encoding."""
    if text.startswith(("{", "[")) or text.endswith(".py") or ".py:" in text:
        return False
    return os.sep in text or (Path(text).exists() and text not in registry.encodings.names())


def read_specs(texts: Sequence[str]) -> tuple[Any, ...]:
    """The encodings that the texts name, resolved.

    Each text is a name, `{name: rope, base: 500000}` or a list as in a recipe, a plugin's file (all of its
    encodings), or one of them, `FILE.py:NAME`.

    Raises:
        InputError: everything that is wrong with any of them.
    """
    found: list[Any] = []
    problems: list[Problem] = []
    for text in texts:
        with collect(problems):
            found += [encoding.resolved(one) for one in _named(text.strip())]
    if len(found) > MOST:
        problems.append(Problem(f"{len(found)} encodings do not fit into one figure; the most is {MOST}"))
    if problems:
        raise InputError(problems)
    return tuple(found)


def _named(text: str) -> list[Any]:
    if text.startswith(("{", "[")):
        return [read_value(text, text)]
    file, _, name = text.rpartition(":") if ".py:" in text else (text, "", "")
    if not file.endswith(".py"):
        registry.encodings.describe(text)  # an unknown name is an error with its nearest
        return [text]
    names = [one.name for one in registry.load_plugin(file) if one.kind == "encoding"]
    if not names:
        raise InputError(f"{file} registers no encoding")
    if name and name not in names:
        raise InputError(f"{file} registers no encoding {name!r}; {hint(name, names)}")
    return [name] if name else names


def check_suffix(out: Path | None) -> None:
    """Raise InputError for a file in a format that is not written."""
    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out {out}: the name must end in {' or '.join(SUFFIXES)}")


def _write(
    found: Columns, title: str, out: Path | None, panels: Sequence[str] | None, names: Sequence[str] = ()
) -> None:
    if panels:
        check_panels(panels, grid.by_key(found))
        found = {label: [one for one in own if one.key in panels] for label, own in found.items()}
    words = (re.sub(r"[^A-Za-z0-9.=-]+", "-", label).strip("-") for label in names or found)
    path = out or Path(f"{'_'.join(words)[:120]}.png")
    with waiting("drawing"):
        suffix = path.suffix.lower()
        if suffix == ".html":
            atomic_write(path, figure_page(found, title))
        else:
            atomic_write(path, content(grid.grid(found, title), suffix))
    print(f"{sum(map(len, found.values()))} panels of {', '.join(found)}: {path}")


def figure_page(columns: Columns, title: str) -> str:
    """A page with a picture for each row of panels."""
    sections = []
    for row in grid.by_key(columns).values():
        picture = content(grid.grid({label: [panel] for label, panel in row.items()}), ".svg")
        about = next(iter(row.values()))
        sections.append(PageSection(about.title, [Picture(picture, about.caption)]))
    return page(f"{', '.join(columns)}: {title}", sections)
