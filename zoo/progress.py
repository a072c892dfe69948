"""One kind of progress bar, on a terminal and in a log file."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 15.0
COLUMNS = 100


class Due:
    """Whether a line of a training's log is due: every 15 seconds, the first after 15 seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.any = False

    def now(self) -> bool:
        if time.monotonic() - self._last < SECONDS_BETWEEN_LINES:
            return False
        self._last, self.any = time.monotonic(), True
        return True


class Lines:
    """A file for a bar that writes each state of it as a line of a log."""

    def write(self, text: str) -> None:
        text = text.strip("\r\n ")
        if text:
            sys.stderr.write(text + "\n")

    def flush(self) -> None:
        sys.stderr.flush()


def progress_bar(total: int | None, about: str, unit: str, **options: Any) -> tqdm:
    """A bar on stderr; where that is no terminal, a line every 15 seconds.

    Args:
        options: those of `tqdm`.
    """
    if sys.stderr.isatty():
        layout: dict[str, Any] = {"mininterval": 0.2, **_width()}
    else:
        pause = SECONDS_BETWEEN_LINES
        layout = {"file": Lines(), "mininterval": pause, "delay": pause, "ncols": COLUMNS}
        options["leave"] = False
    return tqdm(total=total, desc=about, unit=unit, miniters=1, **{**layout, **options})


def _width() -> dict[str, Any]:
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    # Some terminals (of containers, of pipes into a pager) report a width of 0: so would be the bar.
    return {"dynamic_ncols": True} if columns > 0 else {"ncols": COLUMNS}


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`.

    >>> duration(39.6), duration(720), duration(12600), duration(0.31)
    ('40 s', '12 min', '3.5 h', '0.3 s')
    """
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
