"""`zoo draw`: what is asked for is read first, and only then is anything heavy imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from zoo import registry
from zoo.console import waiting
from zoo.errors import InputError, Problem, collect
from zoo.figures.specs import TRAINED, check_sizes, check_suffix, file_name, labels_of, read_specs
from zoo.figures.style import DRAWING
from zoo.files import read_text
from zoo.launch.signals import raise_on_signals

MAX_BYTES, LONGEST_NAME = 1 << 24, 200
"""Of a file of text, and characters of its name."""
CLOUD_SUFFIXES = (".gif", ".html")


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


def is_run(text: str) -> bool:
    """Whether a word of the command line means a run and no encoding: a path, but no plugin's file. A folder
    with the name of an encoding is meant by `./NAME`."""
    if text.startswith(("{", "[")) or text.endswith(".py") or ".py:" in text:
        return False
    return os.sep in text or (Path(text).exists() and text not in registry.encodings.names())


def draw_runs(
    paths: Sequence[Path],
    out: Path | None,
    *,
    text: str | None,
    lengths: Sequence[int] | None,
    sets: Sequence[str],
    device: str,
) -> Path:
    """Draw what trained models do, beside each other, into a file, and say where it is.

    Args:
        text: what they read, or a file that holds it.
        out, lengths, sets, device: as of `draw`, and of `zoo.figures.run.draw_run`.

    Raises InputError with all that is wrong.
    """
    check_suffix(out or Path("x.png"))
    if text is not None and "\n" not in text and len(text) < LONGEST_NAME and Path(text).is_file():
        text = read_text(Path(text), MAX_BYTES)
    with waiting("loading torch"):
        from zoo.figures.run import draw_run

        raise_on_signals(*DRAWING)
    path = out or Path(f"{file_name([one.absolute().name for one in paths])}.png")
    figure = draw_run(
        *paths,
        text=text,
        lengths=lengths,
        sets=sets,
        device=device,
        say=lambda note: print(note, file=sys.stderr),
    )
    with waiting("drawing"):
        figure.save(path)
    print(f"{len(figure.panels)} panels of {', '.join(column.label for column in figure.columns)}: {path}")
    return path


def draw_clouds(what: Sequence[str], out: Path | None, text: str) -> Path:
    """Draw the words of a text as clouds, one for each encoding, into a file, and say where it is.

    Args:
        what: encodings, as of `draw`.
        out: a file that ends in gif or html; by default a GIF of their names in the working folder.

    Raises InputError with all that is wrong.
    """
    problems: list[Problem] = []
    if out is not None and out.suffix.lower() not in CLOUD_SUFFIXES:
        problems.append(Problem(f"--out {out}: with --tokens a picture moves: it ends in .gif or .html"))
    specs = []
    with collect(problems):
        specs = read_specs(what)
    if problems:
        raise InputError(problems)
    with waiting("loading torch"):
        from zoo.figures.tokens import draw_tokens

        raise_on_signals(*DRAWING)
    path = out or Path(f"{file_name(labels_of(specs))}.gif")
    figure = draw_tokens(specs, text=text)
    figure.save(path)
    print(f"{len(figure.words)} tokens of {', '.join(cloud.label for cloud in figure.clouds)}: {path}")
    return path
