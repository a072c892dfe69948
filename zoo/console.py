"""Output to a terminal or log: commands, tables, waiting and progress.

Imports nothing heavy.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from zoo.launch.ranks import is_first_process

if TYPE_CHECKING:
    from tqdm import tqdm

SECONDS_BETWEEN_LINES = 15.0
COLUMNS = 100


def command(*words: object) -> str:
    """A command of the zoo as a line for a shell."""
    return shlex.join(["python", "-m", "zoo", *map(str, words)])


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns; on a terminal the last one goes on below where it is too long."""
    rows = [header, *rows]
    widths = [max(len(row[column]) for row in rows) + 2 for column in range(len(header) - 1)]
    terminal, lines = sys.stdout.isatty(), []
    room = max(30, shutil.get_terminal_size().columns - sum(widths))
    for *cells, last in rows:
        parts = textwrap.wrap(last, room, break_on_hyphens=False) if terminal else [last]
        for part in parts or [""]:
            lines.append("".join(map(str.ljust, cells, widths)) + part)
            cells = [""] * len(cells)
    lines = [line.rstrip() for line in lines]
    if terminal and "NO_COLOR" not in os.environ:
        lines[0] = f"\033[1m{lines[0]}\033[0m"
    return "\n".join(lines)


def shows_progress() -> bool:
    """Whether this is the first process, and stderr a terminal."""
    return is_first_process() and sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Shows on a terminal what the block waits for, until it ends; writes nothing to a log or a pipe."""
    if not shows_progress():
        yield
        return
    print(f"{what} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


class Lines:
    """A file for a bar that writes each state of it to `stream`, as a line of a log."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> None:
        text = text.strip("\r\n ")
        if text:
            self.stream.write(text + "\n")

    def flush(self) -> None:
        self.stream.flush()


def _has_size(terminal: TextIO) -> bool:
    try:
        return all(os.get_terminal_size(terminal.fileno()))
    except OSError:  # it has no descriptor
        return False


def progress_bar(total: int | None, about: str, unit: str, **options: Any) -> tqdm:
    """A bar on stderr; outside a terminal or notebook, a line every 15 seconds. `options` are
    those of `tqdm`."""
    from tqdm import tqdm

    layout: dict[str, Any] = {"mininterval": 0.2, "ncols": COLUMNS}
    if type(sys.stderr).__module__.startswith("ipykernel."):
        layout["mininterval"] = 0.5  # each state is a message to the browser
    elif not sys.stderr.isatty():
        pause = SECONDS_BETWEEN_LINES
        layout |= {"file": Lines(sys.stderr), "mininterval": pause, "delay": pause, "position": 0}
        options["leave"] = False
    else:
        # Pseudo-terminals of containers and CI have no size, and tqdm draws nothing on 0 rows.
        layout |= {"dynamic_ncols": True, "ncols": None} if _has_size(sys.stderr) else {"nrows": 24}
    return tqdm(total=total, desc=about, unit=unit, miniters=1, **{**layout, **options})


def byte_bar(about: str, total: int | None = None) -> tqdm:
    """A bar over the bytes of a text, which the first process alone shows, and removes at the end."""
    options = {"unit_scale": True, "unit_divisor": 1024, "leave": False, "disable": not is_first_process()}
    return progress_bar(total, about, "B", **options)


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`.

    >>> duration(39.6), duration(720), duration(12600), duration(0.31)
    ('40 s', '12 min', '3.5 h', '0.3 s')
    """
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
