"""What a sweep says while it goes: a line for each run that ends, and on a terminal a bar below them."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterable

from tqdm import tqdm

from zoo.progress import progress_bar


class Report:
    """Counts the runs that end, and tells the time that the others will take."""

    def __init__(self, total: int):
        self.total, self.done = total, 0
        self.started = time.monotonic()
        self.bar = progress_bar(total, "sweep", "run") if sys.stderr.isatty() else None

    def say(self, text: str) -> None:
        """A line on stderr, above the bar."""
        tqdm.write(text, file=sys.stderr)
        sys.stderr.flush()

    def running(self, names: Iterable[str]) -> None:
        """Which runs are being computed now."""
        if self.bar is not None:
            self.bar.set_postfix_str(", ".join(names))

    def ended(self, text: str) -> None:
        """One run more has ended."""
        self.done += 1
        left = self.total - self.done
        rest = (time.monotonic() - self.started) / self.done * left
        self.say(f"[{self.done}/{self.total}] {text}" + (f"; about {duration(rest)} left" if left else ""))
        if self.bar is not None:
            self.bar.update(1)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def duration(seconds: float) -> str:
    """`40 s`, or minutes and hours as `2:05` and `1:02:05`."""
    return f"{seconds:.0f} s" if seconds < 60 else tqdm.format_interval(seconds).lstrip("0")


def how_it_ended(code: int) -> str:
    """What the return code of a process means."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"killed by {name}" + (": out of memory?" if name == "SIGKILL" else "")
