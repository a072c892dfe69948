"""Commands that an output names; each can be pasted into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence


def command(words: Sequence[str]) -> str:
    return shlex.join(["python", "-m", "zoo", *words])


def options(protocols: Sequence[str] | None, lengths: Iterable[int] | None) -> list[str]:
    """The words that choose protocols and lengths."""
    chosen = ["--protocol", ",".join(protocols)] if protocols else []
    return chosen + (["--lengths", ",".join(map(str, lengths))] if lengths else [])
