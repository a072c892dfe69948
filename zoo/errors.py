"""The errors that are told to the user as they are: wrong input, and a run that failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    `where` is a place the user can open (`recipes/x.yaml:8`, `--set model.d_model=7`, a folder); `key` the
    recipe key it concerns.
    """

    message: str
    key: str | None = None
    where: str | None = None

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


class InputError(ValueError):
    """Wrong input, told in full: every problem on a line of its own. The command line exits with 2 on it."""

    def __init__(self, problems: str | Problem | Iterable[Problem]):
        if isinstance(problems, str):
            problems = Problem(problems)
        if isinstance(problems, Problem):
            problems = [problems]
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class RunError(RuntimeError):
    """A run failed for a reason that is known and told. The command line exits with 1 on it."""
