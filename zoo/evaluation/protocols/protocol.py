"""Base of the protocols: from a model, data and lengths to a plan of the scoring at each length."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch

from zoo import registry
from zoo.data.source import DataSource
from zoo.evaluation.measurement import Targets
from zoo.memory import is_out_of_memory
from zoo.recipe.sections import EvaluateConfig, construct
from zoo.tasks.task import Task

if TYPE_CHECKING:
    from zoo.launch.team import Team

Numbers = dict[str, Any]
"""The numbers of a length: the fields of `zoo.evaluation.measurement.Row`."""
Piece = TypeVar("Piece")
Result = TypeVar("Result")


class OutOfTime(Exception):
    """A measurement was stopped, in every process, since one of them has used up its time."""


@dataclass(frozen=True)
class Execution:
    """By whom a length is scored: the processes that share the work, who counts the tokens that were read,
    and who is asked before each batch whether there is time left."""

    team: Team
    advance: Callable[[int], Any]
    has_time: Callable[[], bool] = lambda: True

    @property
    def device(self) -> torch.device:
        return self.team.device


@dataclass(frozen=True)
class LengthPlan:
    """One length of a measurement.

    Attributes:
        length: in tokens.
        tokens: how many the model will read.
        score: does it. Gives numbers of one row, or of several where one pass answers for several lengths;
            each of those has its own `length`.
        note: why the length cannot be measured; then there is no `score`.
    """

    length: int
    tokens: int = 0
    score: Callable[[Execution], Numbers | list[Numbers]] | None = None
    note: str | None = None


@dataclass(frozen=True)
class MeasurementPlan:
    """A measurement before it is made: parameters and targets are the same at every length."""

    parameters: dict[str, Any]
    targets: Targets
    lengths: list[LengthPlan]

    @property
    def tokens(self) -> int:
        return sum(one.tokens for one in self.lengths)


class Protocol(ABC):
    """A way to score a model at a length. Its attributes describe it to other modules.

    The typed keywords of the constructor are keys of `evaluate`.
    """

    name: ClassVar[str]

    axis: ClassVar[str] = "length"
    """What `Row.length` is, in tokens: the `length` of a sequence, or the `context` before a target."""
    unit: ClassVar[str] = "documents"
    """What intervals are over."""
    higher_is_better: ClassVar[bool] = False
    needs: ClassVar[str] = "text"
    """text or examples: the tasks that a protocol from outside the zoo goes with."""
    split: ClassVar[str] = "valid"
    """The split that is scored where `evaluate.split` names none."""
    first_plan_only: ClassVar[bool] = False
    """Whether of several plans only the first that can be measured is."""
    explanation: ClassVar[str] = ""
    """A sentence for the reader of a plot."""

    def validate(self, config: EvaluateConfig, lengths: Sequence[int]) -> None:  # noqa: B027
        """Raises InputError for options that do not go with these lengths, before any data is opened."""

    def scored_split(self, config: EvaluateConfig) -> tuple[str, dict[str, str]]:
        """The split that is scored, and the parameters that record it: none for the default."""
        split = config.split or self.split
        return split, {} if split == self.split else {"split": split}

    @abstractmethod
    def plan(self, task: Task, source: DataSource, lengths: Sequence[int]) -> list[MeasurementPlan]:
        """The measurements at these lengths (tokens, ascending), not made yet. Their targets do not depend on
        the lengths asked for."""


def make_targets(
    named: tuple[Any, ...], count: int, start_token: str | None = None, pairs: bytes = b"", **more: str
) -> Targets:
    """Targets with the digest of `named`, which is all that decides them, and of the start token."""
    more |= {} if start_token is None else {"start_token": start_token}
    named += () if start_token is None else (start_token,)
    digest = hashlib.sha256(repr(named).encode() + pairs).hexdigest()[:12]
    return Targets(digest=digest, count=count, **more)


def build_protocol(name: str, config: EvaluateConfig) -> Protocol:
    """A protocol with its options under `evaluate`. Raises InputError where its code cannot be used."""
    return construct(registry.protocols, name, config)


def end_of_encoding(task: Task, length: int) -> str | None:
    """Why a length is too long for the encoding of a model; None where it is not."""
    limit = task.model.encoding.max_length
    return f"the encoding ends at {limit} tokens" if limit is not None and length > limit else None


def split_among(
    execution: Execution,
    pieces: Iterable[Piece],
    tokens: Callable[[Piece], int],
    run: Callable[[Piece], Result],
) -> list[Result]:
    """What `run(piece)` gives for every piece, in their order, in every process of the team.

    The pieces go to the processes in turn. What `run` gives must be plain data or arrays on the CPU.

    Args:
        tokens: how many the model reads for a piece.

    Raises:
        torch.OutOfMemoryError: in every process if the memory of one does not suffice. Any other error ends
            the process, and by it the team.
        OutOfTime: in every process if the time of one of them is used up.
    """
    team, own, shortage, stopped = execution.team, [], None, False
    try:
        for number, piece in enumerate(pieces):
            if number % team.size == team.rank:
                if not execution.has_time():
                    # The others learn of it where they wait anyway; by then their own time is over as well.
                    stopped = True
                    break
                own.append(run(piece))
            execution.advance(tokens(piece))
    except (RuntimeError, MemoryError) as error:
        if team.size == 1 or not is_out_of_memory(error):
            raise
        # Raised at once it would leave the others waiting for this one's share.
        shortage = f"process {team.rank}: {error}"
    gathered = team.gather((own, shortage, stopped))
    for _, shortage, _ in gathered:
        if shortage:
            raise torch.OutOfMemoryError(shortage)
    if any(stopped for _, _, stopped in gathered):
        raise OutOfTime
    shares = [iter(results) for results, _, _ in gathered]
    count = sum(len(results) for results, _, _ in gathered)
    return [next(shares[number % team.size]) for number in range(count)]
