"""`zoo draw`: what is asked for is read first, and only then is anything heavy imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zoo.console import waiting
from zoo.errors import InputError, Problem, collect
from zoo.figures.specs import TRAINED, check_sizes, check_suffix, file_name, labels_of, read_specs
from zoo.figures.style import DRAWING
from zoo.launch.signals import raise_on_signals


def draw(
    what: Sequence[str], out: Path | None, *, length: int, trained: int | None, heads: int, d_model: int
) -> Path:
    """Draw encodings beside each other into a file, and say where it is.

    Args:
        what: encodings, each as `zoo.figures.specs.read_specs` takes them.
        out: a file that ends in png, svg, gif or html; by default a PNG of their names in the working folder.

    Raises InputError with all that is wrong.
    """
    trained = min(TRAINED, length) if trained is None else trained
    problems: list[Problem] = []
    with collect(problems):
        check_suffix(out or Path("x.png"))
    with collect(problems):
        check_sizes(length, trained, heads, d_model)
    specs = []
    with collect(problems):
        specs = read_specs(what)
    if problems:
        raise InputError(problems)
    with waiting("loading torch"):
        from zoo.figures.encoding import draw_encodings

        raise_on_signals(*DRAWING)
    path = out or Path(f"{file_name(labels_of(specs))}.png")
    figure = draw_encodings(specs, length=length, trained=trained, heads=heads, d_model=d_model)
    with waiting("drawing"):
        figure.save(path)
    print(f"{len(figure.panels)} panels of {', '.join(column.label for column in figure.columns)}: {path}")
    return path
