"""How busy other processes kept the machine while a length was measured."""

from __future__ import annotations

import os
from pathlib import Path


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
