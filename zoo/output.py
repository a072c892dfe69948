"""Standard output and error: characters they cannot show, what a terminal waits for, and tables of text.

Imports nothing heavy.
"""

from __future__ import annotations

import codecs
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from zoo.errors import printable
from zoo.launch.ranks import is_first_process

PLAIN = {
    "±": "+/-", "–": "-", "×": "x", "…": "...", "“": '"', "”": '"', "▲": "^",
    **{raised: f"^{number}" for number, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}  # fmt: skip
"""What tables and messages use beyond ASCII, in ASCII."""


def show_all() -> None:
    """From now on stdout and stderr write what their encoding lacks (ASCII under LANG=C, and lone surrogates
    of file names under any) in ASCII, instead of raising UnicodeEncodeError."""
    for stream in (sys.stdout, sys.stderr):
        # There may be none (pythonw), or one that takes any text.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_HANDLER)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Shows on a terminal what the block waits for, until it ends; writes nothing to a log or a pipe."""
    if not (is_first_process() and sys.stderr is not None and sys.stderr.isatty()):
        yield
        return
    # Under TERM=dumb there is no erasing.
    begin, end = ("", "\n") if os.environ.get("TERM") == "dumb" else ("\r\033[K", "")
    print(f"{what} ...", end=end, file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(begin, end="", file=sys.stderr, flush=True)


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    first = error.object[error.start]
    if first in PLAIN:
        return PLAIN[first], error.start + 1
    return first.encode("ascii", "backslashreplace").decode("ascii"), error.start + 1


_HANDLER = "zoo.in_ascii"
codecs.register_error(_HANDLER, _in_ascii)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns; on a terminal no line is longer than the terminal is wide."""
    rows = [header, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    terminal = sys.stdout.isatty()
    limit = shutil.get_terminal_size().columns if terminal else None
    lines = []
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        lines.append(line[: limit - 1] + "…" if limit and len(line) > limit else line)
    if terminal and "NO_COLOR" not in os.environ:
        lines[0] = f"\033[1m{lines[0]}\033[0m"
    return "\n".join(lines)
