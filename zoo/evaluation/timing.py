"""How long a length takes: predicted from the lengths before it, and stopped where it takes too long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

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
        predicted: seconds that it was predicted to take, as was reported before.
        report: called with the seconds that it takes in all, where more than was predicted.
    """

    def __init__(
        self, tokens: int, limit: float | None, predicted: float | None, report: Callable[[float], None]
    ):
        self.tokens, self.limit, self.report = tokens, limit, report
        self.read = 0
        self._reported = max(predicted or 0.0, REPORT_FROM / REPORT_AGAIN)
        self.start()

    def start(self) -> None:
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    @property
    def needed(self) -> float:
        """Seconds that all of it takes, by what was read so far."""
        return self.seconds * self.tokens / max(self.read, 1)

    def has_time(self) -> bool:
        """Asked before each batch."""
        if self.read:
            if self.seconds >= WARM_UP and self.needed >= REPORT_AGAIN * self._reported:
                self._reported = self.needed
                self.report(self.needed)
            if self.limit is not None and self.seconds >= self.limit:
                return False
        return True
