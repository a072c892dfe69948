"""The errors that are shown to the user without a traceback: wrong input, and a run that failed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    `where` is what the user can open (`recipes/x.yaml:8`, `--set model.d_model=7`, a folder); `key` the
    recipe key it concerns.
    """

    message: str
    key: str | None = None
    where: str | None = None

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.where, self.key, self.message)))


class InputError(ValueError):
    """Wrong input, with every problem on a line of its own. The command line exits with 2 on it."""

    def __init__(self, problems: str | Problem | Iterable[Problem]):
        if isinstance(problems, str):
            problems = Problem(problems)
        if isinstance(problems, Problem):
            problems = [problems]
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class RunError(RuntimeError):
    """A run failed for a known reason. The command line exits with 1 on it."""


@contextmanager
def collect(problems: list[Problem]) -> Iterator[None]:
    """Adds the problems of an InputError of the block to a list, so that all can be raised at once."""
    try:
        yield
    except InputError as error:
        problems += error.problems


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """The valid name most like a word, or None when none is near."""
    by_lower = {name.lower(): name for name in valid}
    near = difflib.get_close_matches(word.lower()[:200], by_lower, n=1)
    return by_lower[near[0]] if near else None


def hint(word: str, valid: Iterable[str]) -> str:
    """The nearest valid name, or all of them where none is near."""
    valid = list(valid)
    near = nearest(word, valid)
    return f"did you mean {near!r}?" if near else f"there are: {', '.join(valid)}"


MOST_SHOWN = 600
"""Characters of a list in a message."""


def shorten(text: str, limit: int = 60) -> str:
    """Text cut to a length that fits a message."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
