"""Commands that an output names; each can be pasted into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoo.comparison.runs import RunInfo


def command(words: Sequence[str]) -> str:
    return shlex.join(["python", "-m", "zoo", *words])


def options(protocols: Sequence[str] | None, lengths: Iterable[int] | None) -> list[str]:
    """The words that choose protocols and lengths."""
    chosen = ["--protocol", ",".join(protocols)] if protocols else []
    return chosen + (["--lengths", ",".join(map(str, lengths))] if lengths else [])


def evaluate_command(
    runs: Iterable[RunInfo], protocols: Sequence[str] | None = None, lengths: Iterable[int] | None = None
) -> str:
    """The command of an evaluation, with the plugins of the runs: they are code, and run where named only."""
    runs = list(runs)
    plugins = dict.fromkeys(plugin for run in runs for plugin in run.recipe.get("plugins") or ())
    words = ["evaluate", *(run.path for run in runs), *options(protocols, lengths)]
    return command([*words, *["--set", f"plugins=[{', '.join(plugins)}]"] * bool(plugins)])
