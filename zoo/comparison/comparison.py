"""A comparison of runs as plain data: what the tables, the plots and the page are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.evaluation.curves import kind_of


@dataclass(frozen=True)
class Point:
    """What one seed of a curve gave at one length (tokens)."""

    seed: int | None
    length: int
    value: float


@dataclass(frozen=True)
class Curve:
    """One encoding over the lengths of its panel: the mean over its seeds and the spread around it.

    Every tuple but `points` has a value for each of `lengths`. None stands where nothing was measured, or
    where what was is not finite; `notes` says which, by length. `low` and `high` are the mean minus and plus
    one standard deviation (n - 1) where several seeds were measured, else the 95 % interval of the one
    measurement, by bootstrap; None where there is neither. A note may also stand beside a mean that not all
    seeds are in.
    """

    label: str
    runs: tuple[str, ...]
    lengths: tuple[int, ...]
    mean: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    seeds: int
    points: tuple[Point, ...]
    notes: dict[int, str]
    sd: tuple[float | None, ...]
    """Standard deviation over the seeds; None where fewer than two were measured."""
    measured: tuple[int, ...]
    """Seeds that were measured at each length."""
    counts: tuple[int | None, ...]
    """What each seed's measure rests on (`Panel.counted`); the most of them where they differ. All seeds read
    the same documents, so that their number does not grow with the seeds."""
    tokens_per_second: tuple[float | None, ...]
    """Of the evaluation at each length; the mean over the seeds."""
    peak_memory_mb: tuple[float | None, ...]
    """Of the evaluation at each length, in MiB; the mean over the seeds."""
    train_length: int
    """In tokens. Of one panel all curves have the same, but where runs were compared by force."""


@dataclass(frozen=True)
class Panel:
    """One protocol with its parameters: what it measured, at which lengths (tokens), and the curves."""

    protocol: str
    parameters: dict[str, Any]
    measure: str
    lower_is_better: bool
    lengths: tuple[int, ...]
    curves: tuple[Curve, ...]
    counted: str
    """What `Curve.counts` counts: documents, examples or tokens; empty where that is not known."""

    @property
    def kind(self) -> tuple[str, str]:
        """What the rows of its curves have in common."""
        return kind_of({"protocol": self.protocol, "parameters": self.parameters})

    @property
    def decisive(self) -> int:
        """The longest length at which more than half of the curves have a number, else as many as can be: an
        encoding that ends at the trained length does not take the order back there."""

        def known(length: int) -> int:
            place = self.lengths.index(length)
            return sum(curve.mean[place] is not None for curve in self.curves)

        most = [length for length in self.lengths if 2 * known(length) > len(self.curves)]
        return max(most) if most else max(self.lengths, key=lambda length: (known(length), length))

    @property
    def train_lengths(self) -> tuple[int, ...]:
        """Of the curves, each once, the shortest first."""
        return tuple(sorted({curve.train_length for curve in self.curves}))


@dataclass(frozen=True)
class Cost:
    """What an encoding costs: the mean over its runs.

    `added_parameters` are those of the encoding, `parameters` all of the model's. Tokens per second of the
    evaluation and its peak memory (MiB) are those at `evaluation_length` tokens, the longest that every curve
    could be read at, under the first panel's protocol.
    """

    label: str
    added_parameters: int
    parameters: int
    training_tokens_per_second: float | None
    evaluation_tokens_per_second: float | None
    evaluation_length: int | None
    peak_memory_mb: float | None


@dataclass(frozen=True)
class Comparison:
    """What several runs come to beside each other.

    `differences` says why they are not comparable, and is empty where they are; `remarks` what a reader
    should know and what is no reason to refuse them; `about` what all of them share, as names and values;
    `command` is the one that makes it again.
    """

    title: str
    panels: tuple[Panel, ...]
    costs: tuple[Cost, ...]
    differences: tuple[str, ...]
    about: tuple[tuple[str, str], ...]
    command: str
    remarks: tuple[str, ...] = ()
