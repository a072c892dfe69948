"""Base class of protocols: it makes a plan of the scoring from a model, data and lengths."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor

from zoo import registry
from zoo.data.source import DataSource
from zoo.evaluation.measurement import Measurement, Targets
from zoo.memory import is_out_of_memory
from zoo.models.sequence_split import SequenceSplit
from zoo.recipe.sections import EvaluateConfig, construct
from zoo.tasks.task import Task

if TYPE_CHECKING:
    from zoo.launch.team import Team

Numbers = dict[str, Any]
"""The numbers of a length: the fields of `zoo.evaluation.measurement.Row`."""
Piece = TypeVar("Piece")
Result = TypeVar("Result")


class OutOfTime(Exception):
    """Raised in every process when one of them has used up `evaluate.max_seconds`."""


@dataclass
class Execution:
    """The circumstances in which a length is scored.

    Attributes:
        team: the processes that share the work.
        advance: called with the number of tokens read after each batch.
        has_time: called before each batch; False stops the measurement.
        task: its model may compute a sequence in several processes; None: each sequence is in one.
        split: the processes that compute each sequence together, while they do.
    """

    team: Team
    advance: Callable[[int], Any]
    has_time: Callable[[], bool] = lambda: True
    task: Task | None = None
    split: SequenceSplit | None = None

    @property
    def device(self) -> torch.device:
        return self.team.device

    def splits(self, sequences: int) -> bool:
        """Whether the processes share each of so many sequences (`evaluate.split_sequence`)."""
        if self.task is None or self.team.size == 1:
            return False
        asked = self.task.recipe.evaluate.split_sequence
        return sequences < self.team.size if asked == "auto" else asked

    def in_shares(self, count: int, of_rows: Callable[[slice], Tensor]) -> Tensor:
        """`of_rows(slice(0, count))`, of which each process that computes a sequence takes a share."""
        if self.split is None:
            return of_rows(slice(0, count))
        (shares,) = self.split.rounds(count)
        return self.split.gather(of_rows(shares[self.split.rank]), 0, shares)


@dataclass(frozen=True)
class LengthPlan:
    """One length of a measurement.

    Attributes:
        length: in tokens.
        tokens: the number that the model will read.
        score: returns the numbers of one row, or of several rows with a `length` each.
        note: the reason why the length cannot be measured; then there is no `score`.
    """

    length: int
    tokens: int = 0
    score: Callable[[Execution], Numbers | list[Numbers]] | None = None
    note: str | None = None


@dataclass(frozen=True)
class MeasurementPlan:
    """A planned measurement: parameters and targets are the same at every length."""

    parameters: dict[str, Any]
    targets: Targets
    lengths: list[LengthPlan]

    @property
    def tokens(self) -> int:
        return sum(one.tokens for one in self.lengths)


class Protocol(ABC):
    """A way to score a model at a length. The typed keywords of the constructor are keys of `evaluate`."""

    name: ClassVar[str]

    axis: ClassVar[str] = "length"
    """Meaning of `Row.length`, in tokens: `length` of a sequence, `context` before a target, or `distance`
    to an earlier token."""
    unit: ClassVar[str] = "documents"
    """The units of intervals."""
    higher_is_better: ClassVar[bool] = False
    needs: ClassVar[str] = "text"
    """`text` or `examples`: the tasks that a plugin's protocol can score."""
    split: ClassVar[str] = "valid"
    """The default of `evaluate.split`."""
    first_plan_only: ClassVar[bool] = False
    """Whether only the first plan that can be measured is measured."""
    explanation: ClassVar[str] = ""
    """One sentence below a plot."""

    def validate(self, config: EvaluateConfig, lengths: Sequence[int]) -> None:  # noqa: B027
        """Raises InputError for options that do not go with these lengths, before any data is opened."""

    def scored_split(self, config: EvaluateConfig) -> tuple[str, dict[str, str]]:
        """The split that is scored, and the parameters that record it: none for the default."""
        split = config.split or self.split
        return split, {} if split == self.split else {"split": split}

    @abstractmethod
    def plan(self, task: Task, source: DataSource, lengths: Sequence[int]) -> list[MeasurementPlan]:
        """The measurements at these lengths (tokens, ascending). Targets do not depend on the lengths."""

    def lines(self, task: Task, source: DataSource, one: Measurement) -> Iterable[dict[str, Any]]:
        """The lines of a JSON Lines file beside a measurement of one length; by default there is none."""
        return ()


def make_targets(
    named: tuple[Any, ...], count: int, start_token: str | None = None, pairs: bytes = b"", **more: str | int
) -> Targets:
    """Targets with the digest of `named`, which determines them, and of the start token."""
    more |= {} if start_token is None else {"start_token": start_token}
    named += () if start_token is None else (start_token,)
    digest = hashlib.sha256(repr(named).encode() + pairs).hexdigest()[:12]
    return Targets(digest=digest, count=count, **more)


def build_protocol(name: str, config: EvaluateConfig) -> Protocol:
    """A protocol with its options under `evaluate`. Raises InputError if its code cannot be imported."""
    return construct(registry.protocols, name, config)


def end_of_encoding(task: Task, length: int) -> str | None:
    """A note if a length is too long for the encoding of a model, else None."""
    limit = task.model.encoding.max_length
    return f"the encoding ends at {limit} tokens" if limit is not None and length > limit else None


def split_among(
    execution: Execution,
    pieces: Iterable[Piece],
    tokens: Callable[[Piece], int],
    run: Callable[[Piece], Result],
) -> list[Result]:
    """The results of `run(piece)` for every piece, in their order, in every process of the team.

    The processes take pieces in turn, or compute each together (see `Execution.splits`). Results must be
    plain data or arrays on the CPU.

    Args:
        pieces: batches of sequences; `len(piece)` is their number.
        tokens: the number of tokens that the model reads for a piece.

    Raises:
        torch.OutOfMemoryError: in every process if one runs out of memory.
        OutOfTime: in every process if one has no time left.
    """
    pieces = list(pieces)
    if execution.splits(sum(map(len, pieces))):
        return _together(execution, pieces, tokens, run)
    team, own, ended = execution.team, [], None
    try:
        for number, piece in enumerate(pieces):
            if number % team.size == team.rank:
                if not execution.has_time():
                    ended = OutOfTime()
                    break
                own.append(run(piece))
            execution.advance(tokens(piece))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        # The others wait for this process's results: all raise together.
        ended = torch.OutOfMemoryError(f"process {team.rank}: {error}")
    gathered = team.gather((own, ended))
    for _, error in gathered:
        if error is not None:
            raise error
    shares = [iter(results) for results, _ in gathered]
    return [next(shares[number % team.size]) for number in range(sum(len(share) for share, _ in gathered))]


def _together(
    execution: Execution, pieces: list[Piece], tokens: Callable[[Piece], int], run: Callable[[Piece], Result]
) -> list[Result]:
    """`split_among` where all processes compute every piece, each a part of its sequences."""
    team, model, results = execution.team, execution.task.model, []
    execution.split = model.split = split = team.sequence_split()
    try:
        for piece in pieces:
            if not all(team.gather(execution.has_time())):
                raise OutOfTime
            results.append(run(piece))
            split.agree()
            execution.advance(tokens(piece))
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error) and not split.failed:
            split.agree(fits=False)  # the others wait for this process: all raise together
        raise
    finally:
        execution.split = model.split = None
    return results
