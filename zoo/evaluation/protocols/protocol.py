"""What every protocol gives: a list of measurements, each to be done by one process or shared by several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from zoo.data.source import DataSource
from zoo.memory import is_out_of_memory
from zoo.tasks.task import Task

if TYPE_CHECKING:
    from zoo.launch.team import Team

Row = dict[str, Any]
"""One result as it is stored: what was measured, how, and the numbers."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class OutOfTime(Exception):
    """A measurement was stopped, in every process, because one of them would not go on."""


@dataclass(frozen=True)
class Place:
    """Where a measurement happens: the processes that share it, who hears of every token read, and who is
    asked before each piece whether to go on."""

    team: Team
    advance: Callable[[int], Any]
    goes_on: Callable[[], bool] = lambda: True

    @property
    def device(self) -> torch.device:
        return self.team.device


@dataclass(frozen=True)
class Measurement:
    """One thing to measure, as `measurements(task, source, lengths)` of a protocol lists them.

    Attributes:
        length: in tokens.
        parameters: the protocol's own, the same at every length.
        tokens: how many the model will read.
        measure: does it. Gives the row's numbers, or several rows where one reading answers for several
            lengths; such a row says its own `length`.
        note: why it cannot be measured; then there is no `measure`.
        instead: what to measure where this one has a note or runs out of memory.
    """

    length: int
    parameters: dict[str, Any] = field(default_factory=dict)
    tokens: int = 0
    measure: Callable[[Place], Row | list[Row]] | None = None
    note: str | None = None
    instead: Measurement | None = None


def obstacle(task: Task, source: DataSource, length: int) -> str | None:
    """Why a length cannot be measured whatever the protocol; None where it can."""
    limit = task.model.encoding.max_length
    if limit is not None and length > limit:
        return f"the encoding ends at {limit} tokens"
    if source.kind == "text" and length >= len(source.stream("valid")):
        return f"the validation text has only {len(source.stream('valid'))} tokens"
    return None


def share(
    place: Place, pieces: Iterable[Piece], tokens: Callable[[Piece], int], run: Callable[[Piece], Result]
) -> list[Result]:
    """What `run(piece)` gives for every piece, in their order, in every process of the team.

    The pieces go to the processes in turn. What `run` gives must be plain data or arrays on the CPU.

    Args:
        tokens: how many the model reads for a piece.

    Raises:
        torch.OutOfMemoryError: in every process if the memory of one does not suffice. Any other error ends
            the process, and by it the team.
        OutOfTime: in every process if one of them would not go on.
    """
    team, own, shortage, stopped = place.team, [], None, False
    try:
        for number, piece in enumerate(pieces):
            if number % team.size == team.rank:
                if not place.goes_on():
                    # The others learn of it where they wait anyway; by then their own time is over as well.
                    stopped = True
                    break
                own.append(run(piece))
            place.advance(tokens(piece))
    except (RuntimeError, MemoryError) as error:
        if team.size == 1 or not is_out_of_memory(error):
            raise
        # Raised at once it would leave the others waiting for this one's share.
        shortage = f"process {team.rank}: {error}"
    told = team.gather((own, shortage, stopped))
    for _, shortage, _ in told:
        if shortage:
            raise torch.OutOfMemoryError(shortage)
    if any(stopped for _, _, stopped in told):
        raise OutOfTime
    shares = [iter(results) for results, _, _ in told]
    return [next(shares[number % team.size]) for number in range(sum(len(results) for results, _, _ in told))]
