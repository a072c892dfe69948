"""A law: a property that every encoding must have, as one sentence and one function that tests it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import StringIO

import torch
from torch import Tensor

from zoo.contract.output import captured
from zoo.contract.small_model import Subject

Trial = Callable[[Subject], "Finding"]
Condition = Callable[[Subject], "str | None"]
"""Why a law does not apply to a subject; None where it does."""


@dataclass(frozen=True)
class Finding:
    """The result of a law: whether it held, the numbers, and how close they are to the bound."""

    held: bool
    numbers: str = ""
    share: float = 0.0
    """Fraction of the bound; above 1 the law is broken."""
    note: str = ""
    """A remark to show that is not a fault."""
    where: str = ""
    """File and line of the fault in the plugin, if known."""
    output: str = ""
    """What the encoding printed and warned during the trial."""


class Fault(Exception):
    """Raised inside a trial: the law is broken by the code at `where`."""

    def __init__(self, message: str, where: str = ""):
        super().__init__(message)
        self.where = where


def all_of(findings: list[Finding]) -> Finding:
    """The worst of several findings."""
    return max(findings, key=lambda one: (not one.held, one.share))


def broken(numbers: str) -> Finding:
    return Finding(False, numbers, float("inf"))


def held(numbers: str = "", note: str = "") -> Finding:
    return Finding(True, numbers, note=note)


def farthest(actual: Tensor, expected: Tensor) -> float:
    """The largest absolute difference. Equal infinities differ by nothing; a NaN differs by infinity."""
    if actual.shape != expected.shape:
        raise ValueError(f"shape {list(actual.shape)} where {list(expected.shape)} was expected")
    difference = (actual.detach().double() - expected.detach().double()).abs()
    difference = difference.masked_fill(actual == expected, 0.0)
    return float(difference.nan_to_num(nan=torch.inf).max()) if difference.numel() else 0.0


def within(difference: float, bound: float, what: str = "largest difference") -> Finding:
    """Held where a difference is at most its bound."""
    share = difference / bound if bound else (0.0 if difference == 0 else float("inf"))
    return Finding(difference <= bound, f"{what} {difference:.2g} (bound {bound:.2g})", share)


def beyond(difference: float, bound: float, what: str) -> Finding:
    """Held where a difference is more than its bound."""
    share = bound / difference if difference else float("inf")
    return Finding(difference > bound, f"{what} {difference:.2g} (at least {bound:.2g})", share)


@dataclass(frozen=True)
class Law:
    name: str
    statement: str
    trial: Trial
    conditions: tuple[Condition, ...] = ()
    needs: tuple[str, ...] = ()
    """Names of laws that must hold before this one is tried."""
    slow: bool = False
    """Takes many seconds where others take milliseconds: `check` tries it with `--all` only."""
    together: Callable[[Sequence[Subject]], list[Finding]] | None = None
    """Tries several at once, where that is cheaper."""

    def does_not_apply(self, subject: Subject) -> str | None:
        """Why it does not apply to this subject; None where it does."""
        reasons = (condition(subject) for condition in self.conditions)
        return next((reason for reason in reasons if reason is not None), None)

    def try_on(self, subject: Subject) -> Finding:
        """Try it on one subject, with a fixed seed and its own random state. An exception breaks the law."""
        with _isolated() as output:
            try:
                finding = self.trial(subject)
            except (Exception, SystemExit) as error:  # whatever a plugin's code does
                finding = _of_error(error, subject)
        return replace(finding, output=output.getvalue())

    def try_on_all(self, subjects: Sequence[Subject]) -> list[Finding]:
        """Try the law on several subjects; one finding for each."""
        if self.together is None:
            return [self.try_on(subject) for subject in subjects]
        with _isolated() as output:
            try:
                findings = self.together(subjects)
            except (Exception, SystemExit) as error:
                findings = [_of_error(error, subject) for subject in subjects]
        return [replace(findings[0], output=output.getvalue()), *findings[1:]]


def _of_error(error: BaseException, subject: Subject) -> Finding:
    if isinstance(error, Fault):
        return replace(broken(str(error)), where=error.where)
    return replace(broken(first_line(error)), where=subject.line_of(error))


def first_line(error: BaseException) -> str:
    """An exception as one line of text."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


@contextmanager
def _isolated() -> Iterator[StringIO]:
    """Own random state, gradients enabled, output and warnings captured."""
    before = random.getstate()
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), captured() as output:
        torch.default_generator.manual_seed(0)
        random.seed(0)
        try:
            yield output
        finally:
            random.setstate(before)


LAWS: list[Law] = []
"""In the order in which they are tried and reported: a law comes after those that it needs."""

BUILDS = "it can be built"
SHAPES = "shapes"
PADDED = "shapes with padding"
CHANGES = "it changes the output"
REPEATS = "evaluation is deterministic"
CAUSAL = "causality"
"""Laws that others need."""


def law(
    name: str,
    statement: str,
    *conditions: Condition,
    needs: tuple[str, ...] = (SHAPES,),
    slow: bool = False,
    together: Callable[[Sequence[Subject]], list[Finding]] | None = None,
) -> Callable[[Trial], Trial]:
    """Register a function as a law."""

    def decorate(trial: Trial) -> Trial:
        LAWS.append(Law(name, statement, trial, conditions, needs, slow, together))
        return trial

    return decorate


# Conditions.


def decoders(subject: Subject) -> str | None:
    return None if subject.kind == "decoder" else "for decoders only"


def encoders(subject: Subject) -> str | None:
    return None if subject.kind == "encoder" else "for encoders only"


def trained(subject: Subject) -> str | None:
    return "it only replaces another encoding after training" if subject.only_evaluates else None


def first_kind(subject: Subject) -> str | None:
    """For laws that are the same in an encoder and a decoder."""
    return (
        None if subject.kind == (*subject.kinds, subject.kind)[0] else f"reported for the {subject.kinds[0]}"
    )


def alone(subject: Subject) -> str | None:
    return "about one encoding, not a list" if isinstance(subject.spec, list) else None


def plain(subject: Subject) -> str | None:
    """For laws about the class, whatever the options."""
    return (
        None if not isinstance(subject.spec, list) and subject.is_default else "reported once for the class"
    )
