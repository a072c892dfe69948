"""How long a length takes, predicted from the lengths before it and stopped where it takes too long; and how
busy the machine was meanwhile."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

REPORT_FROM = 15.0
"""Seconds from which on it is reported beforehand how long a length takes."""
WARM_UP = 3.0
"""Seconds that a length is read for before it is predicted from them: first batches are slow."""
TOO_LONG = 2.0
"""A length that is predicted to take so many times longer than it may is not begun."""
REPORT_AGAIN = 1.5
"""What turns out to take so many times longer than was reported is reported again."""


class CostByLength:
    """What a token costs by length, in seconds, for one model on one machine: the same for every protocol
    that reads windows of that length."""

    def __init__(self) -> None:
        self._costs: dict[int, float] = {}

    def record(self, length: int, cost: float) -> None:
        """A token in a window of `length` has taken so many seconds."""
        if cost > 0:
            self._costs[length] = cost

    def predict(self, length: int, tokens: int) -> float | None:
        """Seconds that reading `tokens` in windows of `length` may take; None where nothing shorter is known.

        Cost per token grows with the length as between the last two lengths known, as a power of it; of one
        length alone it is taken as it is, which is too little for what attention costs.
        """
        known = sorted(one for one in self._costs if one <= length)
        if not known:
            return None
        last = known[-1]
        power = 0.0
        if len(known) > 1 and last < length:
            before = known[-2]
            power = math.log(self._costs[last] / self._costs[before]) / math.log(last / before)
        # More than quadratic is noise of short lengths, less than none too.
        return tokens * self._costs[last] * (length / last) ** min(max(power, 0.0), 2.0)


class Stopwatch:
    """One length while it is read: reports how long it will take, and when it has taken long enough.

    Args:
        tokens: how many will be read.
        limit: seconds that it may take; None: as long as it needs.
        predicted: seconds that it will take in all, by the lengths before it.
        report: called with them, and again where it turns out to take longer.
    """

    def __init__(
        self, tokens: int, limit: float | None, predicted: float | None, report: Callable[[float], None]
    ):
        self.tokens, self.limit, self.report = tokens, limit, report
        self.read = 0
        self._reported = max(predicted or 0.0, REPORT_FROM / REPORT_AGAIN)
        if self._reported >= REPORT_FROM:
            report(self._reported)
        self.start()

    def start(self) -> None:
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def has_time(self) -> bool:
        """Asked before each batch."""
        if not self.read:
            return True
        needed = self.seconds * self.tokens / self.read
        if self.seconds >= WARM_UP and needed >= REPORT_AGAIN * self._reported:
            self._reported = needed
            self.report(needed)
        return self.limit is None or self.seconds < self.limit


class ForeignLoad:
    """How much of the machine's processors other processes use from now on."""

    def __init__(self) -> None:
        self._own, self._machine = _process_seconds(), _machine_seconds()

    def own_seconds(self) -> float:
        """Of the processors, that this process has used."""
        return _process_seconds() - self._own

    def others(self, own: float) -> float | None:
        """The share of the processors, from 0 to 1, that others used; None where it is not known.

        Args:
            own: the seconds that all processes of this evaluation used.
        """
        now = _machine_seconds()
        if self._machine is None or now is None or now[1] <= self._machine[1]:
            return None
        used, there = now[0] - self._machine[0], now[1] - self._machine[1]
        return min(max((used - own) / there, 0.0), 1.0)


def _process_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _machine_seconds() -> tuple[float, float] | None:
    """Seconds that the processors worked, and that there were, since the start of the machine (Linux)."""
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        # user nice system idle iowait irq softirq steal; what follows is in `user` already.
        ticks = [int(part) for part in line.split()[1:9]]
    except (OSError, ValueError):
        return None
    per_second = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - ticks[3] - ticks[4]) / per_second, sum(ticks) / per_second
