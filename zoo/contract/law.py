"""A law: what every encoding must keep, in one sentence and one function that tries it."""

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
    """What came of trying a law: whether it held, the numbers, and how near to its bound it came."""

    held: bool
    numbers: str = ""
    share: float = 0.0
    """Of what the bound allows: above 1 is broken."""
    note: str = ""
    """What is no fault, and yet to be told."""
    where: str = ""
    """File and line of the plugin that a fault comes from, where it is known."""
    output: str = ""
    """What the encoding printed and warned meanwhile."""


class Fault(Exception):
    """Raised within a trial: the law is broken, by code at `where`."""

    def __init__(self, message: str, where: str = ""):
        super().__init__(message)
        self.where = where


def all_of(findings: list[Finding]) -> Finding:
    """One for several: the worst of them."""
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
    says: str
    trial: Trial
    conditions: tuple[Condition, ...] = ()
    needs: tuple[str, ...] = ()
    """Names of laws without which trying this one shows nothing new."""
    slow: bool = False
    """Takes many seconds where others take milliseconds: `check` tries it with `--all` only."""
    together: Callable[[Sequence[Subject]], list[Finding]] | None = None
    """Tries several at once, where that is cheaper."""

    def does_not_apply(self, subject: Subject) -> str | None:
        """Why it does not apply to this subject; None where it does."""
        reasons = (condition(subject) for condition in self.conditions)
        return next((reason for reason in reasons if reason is not None), None)

    def try_on(self, subject: Subject) -> Finding:
        """What comes of it. Seeds are fixed and the caller's are left alone; an exception is a broken law."""
        with _aside() as output:
            try:
                finding = self.trial(subject)
            except (Exception, SystemExit) as error:  # whatever a plugin's code does
                finding = _of_error(error, subject)
        return replace(finding, output=output.getvalue())

    def try_on_all(self, subjects: Sequence[Subject]) -> list[Finding]:
        """What comes of it for each."""
        if self.together is None:
            return [self.try_on(subject) for subject in subjects]
        with _aside() as output:
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
    """An exception in a line."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


@contextmanager
def _aside() -> Iterator[StringIO]:
    """Random numbers of its own, gradients on, and what is printed and warned captured."""
    before = random.getstate()
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), captured() as output:
        torch.default_generator.manual_seed(0)
        random.seed(0)
        try:
            yield output
        finally:
            random.setstate(before)


LAWS: list[Law] = []
"""In the order in which they are tried and told: what a law needs stands before it."""

BUILDS = "it can be built"
SHAPES = "shapes"
PADDED = "shapes with padding"
CHANGES = "it changes the output"
REPEATS = "evaluation is no game of chance"
CAUSAL = "causality"
"""Laws that others need."""


def law(
    name: str,
    says: str,
    *conditions: Condition,
    needs: tuple[str, ...] = (SHAPES,),
    slow: bool = False,
    together: Callable[[Sequence[Subject]], list[Finding]] | None = None,
) -> Callable[[Trial], Trial]:
    """Makes a function a law."""

    def decorate(trial: Trial) -> Trial:
        LAWS.append(Law(name, says, trial, conditions, needs, slow, together))
        return trial

    return decorate


# Conditions.


def decoders(subject: Subject) -> str | None:
    return None if subject.kind == "decoder" else "only a decoder has an order of time"


def encoders(subject: Subject) -> str | None:
    return None if subject.kind == "encoder" else "not used in an encoder"


def trained(subject: Subject) -> str | None:
    return "nothing trains with it: it only takes another's place" if subject.only_evaluates else None


def first_kind(subject: Subject) -> str | None:
    """For laws that are the same in an encoder and a decoder."""
    return None if subject.kind == (*subject.kinds, subject.kind)[0] else f"told for the {subject.kinds[0]}"


def alone(subject: Subject) -> str | None:
    return "about one encoding, not a list" if isinstance(subject.spec, list) else None


def plain(subject: Subject) -> str | None:
    """For laws about the class, whatever the options."""
    return None if not isinstance(subject.spec, list) and subject.is_default else "told once for the class"
