"""Values that differ between runs, and who has which, as a message names them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from zoo.errors import shorten

NAMED = 4
"""Runs that a message names one by one; of more that agree only the number, where the others are named."""

Groups = tuple[tuple[Any, tuple[str, ...]], ...]
"""Each value with the names that have it."""


def grouped(values: Iterable[tuple[str, Any]]) -> Groups:
    """Names and values, by value."""
    groups: dict[str, tuple[Any, dict[str, None]]] = {}
    for name, value in values:
        groups.setdefault(json.dumps(value, sort_keys=True, default=str), (value, {}))[1][name] = None
    return tuple((value, tuple(names)) for value, names in groups.values())


def groups_as_text(values: Sequence[tuple[Any, tuple[str, ...]]]) -> str:
    """Values with the runs that have them: `0.001 in runs/a; 0.003 in the other 5`."""
    most = max(len(runs) for _, runs in values)
    parts = []
    for value, runs in sorted(values, key=lambda value: len(value[1])):
        others = len(runs) == most > NAMED and len(values) > 1
        most -= others  # only one group can be the others
        parts.append(f"{value_as_text(value)} in {f'the other {len(runs)}' if others else ', '.join(runs)}")
    return "; ".join(parts)


def value_as_text(value: Any, limit: int = 60) -> str:
    """A value as a message has it, cut to a number of characters; of a digest the beginning."""
    if isinstance(value, str):
        is_digest = len(value) >= 40 and not set(value[:40]) - set("0123456789abcdef")
        return value[:12] + value[40:] * (len(value) < 64) if is_digest else shorten(value, limit) or "''"
    return shorten(json.dumps(value, default=str), limit)
