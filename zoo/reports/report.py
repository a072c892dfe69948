"""A report on one run or on several, as plain data: tables, plots and page are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NOT_FINITE, NOT_EVALUATED = "not finite", "not evaluated"


@dataclass(frozen=True)
class Point:
    """What one seed of a curve gave at one length (tokens)."""

    seed: int | None
    length: int
    value: float


@dataclass(frozen=True)
class Difference:
    """One curve's value less another's, with its 95 % interval; or `why` there is none."""

    value: float
    low: float | None = None
    high: float | None = None
    why: str = ""

    @property
    def sign(self) -> int | None:
        """1 or -1 where the interval leaves out zero, 0 where it includes it, None where there is none."""
        if self.low is None or self.high is None:
            return None
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    def __neg__(self) -> Difference:
        low, high = (None, None) if self.sign is None else (-self.high, -self.low)
        return Difference(-self.value, low, high, self.why)


@dataclass(frozen=True)
class Caveat:
    """What a reader should know, and the command, if any, after which it does not hold any more."""

    text: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.text}: {self.command}" if self.command else self.text


@dataclass(frozen=True)
class Curve:
    """One encoding over the lengths of its panel: the mean over its seeds and the spread around it.

    Every tuple but `points` has a value for each of `lengths`. None stands where nothing was measured, or
    where what was is not finite; `notes` says which, by length. `low` and `high` are the ends of the mean's
    95 % interval (`Panel.interval` says over what), None where there is none. A note may also stand beside a
    mean that not all seeds are in.
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
    others: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Other measures than the panel's, by name: the means over the seeds."""

    def failed(self, index: int) -> bool:
        """Whether a loss at one of the lengths is not finite, as one that diverged."""
        return self.mean[index] is None and NOT_FINITE in self.notes.get(self.lengths[index], "")

    def is_noted(self, index: int) -> bool:
        """Whether something forbids one of the lengths, as the end of the encoding does."""
        note = self.notes.get(self.lengths[index], "")
        return self.mean[index] is None and not self.failed(index) and note not in ("", NOT_EVALUATED)


@dataclass(frozen=True)
class Panel:
    """One protocol with its parameters on the same targets: what it measured, at which lengths (tokens), and
    the curves."""

    kind: tuple[str, str, str]
    """Protocol, parameters as JSON, and digest of the targets: what the rows of all curves have in common."""
    protocol: str
    parameters: dict[str, Any]
    measure: str
    lower_is_better: bool
    lengths: tuple[int, ...]
    curves: tuple[Curve, ...]
    axis: str = "length"
    """What `lengths` are: `length` of a sequence, or `context` before a target."""
    explanation: str = ""
    """What the protocol measures, in a sentence."""
    counted: str = ""
    """What `Curve.counts` counts: documents, examples or tokens; empty where that is not known."""
    interval: str = ""
    """What the intervals of all curves and differences are: `95 % interval over documents`."""
    averaged: bool = False
    """Whether the seeds of some curves are averaged, since others have one, and no interval is over them."""
    reference: str = ""
    """The label of the curve that differences are shown to."""
    pairs: Mapping[tuple[int, str, str], Difference] = field(default_factory=dict)
    """By length and the labels of two curves in their order: the first one's value less the second one's."""
    subject: str = "encoding"
    """What a curve is of: an encoding, or of `zoo.reports.models` a model."""

    @property
    def decisive(self) -> int:
        """The longest length at which more than half of the curves have a number, else as many as can be: an
        encoding that ends at the trained length does not take the order back there."""

        def known(length: int) -> int:
            index = self.lengths.index(length)
            return sum(curve.mean[index] is not None for curve in self.curves)

        most = [length for length in self.lengths if 2 * known(length) > len(self.curves)]
        return max(most) if most else max(self.lengths, key=lambda length: (known(length), length))

    @property
    def trained(self) -> int:
        """The trained length, the shortest where there are several; where none was measured, `decisive`."""
        return next((length for length in self.train_lengths if length in self.lengths), self.decisive)

    def between(self, length: int, one: str, other: str) -> Difference | None:
        """The first curve's value less the second one's; None where one of them has none."""
        found = self.pairs.get((length, other, one))
        return self.pairs.get((length, one, other)) if found is None else -found

    def is_better(self, difference: Difference) -> bool:
        """Whether a difference says that the first of its curves is the better one, beyond its interval."""
        return difference.sign == (-1 if self.lower_is_better else 1)

    def rank(self, label: str, length: int) -> int | None:
        """One more than the number of curves that are better at a length, beyond the interval of the
        difference; None where there is no such interval, or nothing to compare with."""
        others = [curve.label for curve in self.curves if curve.label != label]
        found = [self.between(length, other, label) for other in others]
        known = [one for one in found if one is not None]
        if not known or any(one.sign is None for one in known):
            return None
        return 1 + sum(map(self.is_better, known))

    def winner(self, length: int) -> str | None:
        """The curve that is better than all others that have a value, beyond their intervals, if one is."""
        for curve in self.curves:
            others = [one.label for one in self.curves if one is not curve]
            found = [one for other in others if (one := self.between(length, curve.label, other)) is not None]
            if found and all(map(self.is_better, found)):
                return curve.label
        return None

    def why_unranked(self, length: int) -> str:
        """Why some curves have no rank at a length; empty where all that have a value are ranked."""
        found = (one for (at, _, _), one in self.pairs.items() if at == length)
        return "; ".join(dict.fromkeys(one.why for one in found if one.sign is None))

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
class Report:
    """What one run or several come to.

    `differences` says why the runs are not comparable, and is empty where they are; `caveats` what a reader
    should know and what is no reason to refuse them; `about` what all runs share, as names and values;
    `command` is the one that makes the report again, and `verdict` what it comes to, in a sentence.
    """

    title: str
    panels: tuple[Panel, ...]
    costs: tuple[Cost, ...] = ()
    differences: tuple[str, ...] = ()
    about: tuple[tuple[str, str], ...] = ()
    command: str = ""
    caveats: tuple[Caveat, ...] = ()
    verdict: str = ""

    @property
    def labels(self) -> list[str]:
        """Of all curves, each once, in their order."""
        return list(dict.fromkeys(curve.label for panel in self.panels for curve in panel.curves))
