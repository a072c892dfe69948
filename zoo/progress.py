"""One kind of progress bar, on a terminal and in a log file."""

from __future__ import annotations

import os
import sys
from typing import Any

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 15.0
COLUMNS = 100


class Lines:
    """Takes what a bar draws over and over in one place, and writes it as lines of a log."""

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
        place: dict[str, Any] = {"mininterval": 0.2, **_width()}
    else:
        pause = SECONDS_BETWEEN_LINES
        place = {"file": Lines(), "mininterval": pause, "delay": pause, "ncols": COLUMNS}
        options["leave"] = False
    return tqdm(total=total, desc=about, unit=unit, miniters=1, **{**place, **options})


def _width() -> dict[str, Any]:
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    # Some terminals (of containers, of pipes into a pager) say that they are 0 wide: the bar would be too.
    return {"dynamic_ncols": True} if columns > 0 else {"ncols": COLUMNS}
