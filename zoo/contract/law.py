"""A law is a property that every subject must have; `examine` tries laws on subjects.

Encodings, datasets and protocols have laws of their own. A law's trial yields findings: the first that fails,
or an exception, breaks the law.
"""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import torch
from torch import Tensor

from zoo.encodings.likely_cause import explained, line_of

Condition = Callable[[Any], "str | None"]
"""The reason why a law does not apply to a subject; None where it applies."""


@dataclass(frozen=True)
class Outcome:
    """Whether a check passed, its numbers, and `share`, the fraction of the bound that they reach."""

    passed: bool
    numbers: str = ""
    share: float = 0.0
    note: str = ""
    """A remark to print that is not a fault."""
    where: str = ""
    """File and line of the fault in the plugin, if known."""


Trial = Callable[[Any], Iterator[Outcome]]


class Fault(Exception):
    """Raised inside a trial: the law is broken by the code at `where`."""

    def __init__(self, message: str, where: str = ""):
        super().__init__(message)
        self.where = where


def passed(numbers: str = "") -> Outcome:
    return Outcome(True, numbers)


def failed(numbers: str, where: str = "") -> Outcome:
    return Outcome(False, numbers, where=where)


def within(difference: float, bound: float, what: str = "largest difference") -> Outcome:
    """Passes where a difference is at most its bound."""
    share = difference / bound if bound else difference
    return Outcome(difference <= bound, f"{what} {difference:.2g} (bound {bound:.2g})", share)


def beyond(difference: float, bound: float, what: str) -> Outcome:
    """Passes where a difference is larger than its bound."""
    share = bound / difference if difference else float("inf")
    return Outcome(difference > bound, f"{what} {difference:.2g} (at least {bound:.2g})", share)


def farthest(actual: Tensor, expected: Tensor) -> float:
    """The largest absolute difference; 0 for equal infinities, infinity for NaN."""
    if actual.shape != expected.shape:
        raise ValueError(f"shape {list(actual.shape)} where {list(expected.shape)} was expected")
    difference = (actual.detach().double() - expected.detach().double()).abs()
    difference = difference.masked_fill(actual == expected, 0.0)
    return float(difference.nan_to_num(nan=torch.inf).max()) if difference.numel() else 0.0


@dataclass(frozen=True)
class Law:
    name: str
    statement: str
    trial: Trial
    conditions: tuple[Condition, ...] = ()
    needs: tuple[str, ...] = ()
    """Names of laws that must pass before this one is tried."""
    slow: bool = False
    """Takes many seconds: `check` tries it with `--all` only."""

    def does_not_apply(self, subject: Any) -> str | None:
        """The reason why it does not apply to this subject; None where it applies."""
        return next((reason for condition in self.conditions if (reason := condition(subject))), None)

    def try_on(self, subject: Any) -> Outcome:
        """The first finding that failed, or the one closest to its bound; seeds and random state are own."""
        found = [passed()]
        with _isolated():
            try:
                for finding in self.trial(subject):
                    if not finding.passed:
                        return finding
                    found.append(finding)
            except Fault as fault:
                return failed(str(fault), fault.where)
            except (Exception, SystemExit) as error:  # of a plugin
                return failed(explained(error), line_of(error, subject.plugins))
        return max(found[1:] or found, key=lambda one: one.share)


@contextmanager
def _isolated() -> Iterator[None]:
    """A random state of its own, and gradients enabled."""
    before = random.getstate()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.default_generator.manual_seed(0)
        random.seed(0)
        try:
            yield
        finally:
            random.setstate(before)


LAWS: list[Law] = []
"""The laws of encodings, each after the laws that it needs."""

BUILDS = "it can be built"
SPELLED = "hook names are spelled correctly"
"""Laws that every other law needs."""
SHAPES = "shapes"
REACHES = "longer sequences can be computed"
PADDED = "shapes with padding"
CHANGES = "it changes the output"
REPEATS = "evaluation is deterministic"
CAUSAL = "causality"


def law(
    name: str,
    statement: str,
    *conditions: Condition,
    needs: tuple[str, ...] = (SHAPES,),
    slow: bool = False,
    laws: list[Law] = LAWS,
) -> Callable[[Trial], Trial]:
    """Register a function as a law."""

    def decorate(trial: Trial) -> Trial:
        laws.append(Law(name, statement, trial, conditions, needs, slow))
        return trial

    return decorate


def only(reason: str, applies: Callable[[Any], bool]) -> Condition:
    """The condition that `applies` is true; `reason` is printed where it is not."""
    return lambda subject: None if applies(subject) else reason


@dataclass
class Verdict:
    """The results of one law on all subjects."""

    law: Law
    findings: list[tuple[Any, Outcome]] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    """Names of the failed laws because of which it was not tried on other subjects."""
    reason: str = ""
    """The reason why it does not apply to the rest."""

    @property
    def failures(self) -> list[tuple[Any, Outcome]]:
        return [(subject, finding) for subject, finding in self.findings if not finding.passed]

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Name, result, how many subjects pass, and the worst numbers: a row of the table."""
        if self.causes and not self.failures:
            return self.law.name, "not tried", "", f"needs: {'; '.join(dict.fromkeys(self.causes))}"
        if not self.findings:
            return self.law.name, "does not apply", "", self.reason
        _, worst = max(self.findings, key=lambda one: (not one[1].passed, one[1].share))
        tried = f"{len(self.findings) - len(self.failures)} of {len(self.findings)}"
        return self.law.name, "passed" if worst.passed else "FAILED", tried, worst.numbers


def examine(
    subjects: Sequence[Any], laws: Sequence[Law], report: Callable[[Verdict], object] = lambda verdict: None
) -> list[Verdict]:
    """Try every law on every subject to which it applies and which passed the laws that it needs.

    Args:
        subjects: each has `plugins`, the descriptions of classes outside the zoo.
        laws: each after the laws that it needs; a needed law that is left out counts as passed.
        report: called with the verdict on each law as soon as it is known.
    """
    verdicts = [Verdict(law) for law in laws]
    # For each subject: the laws that failed or were not tried, each with the failed law that is the cause.
    causes: dict[Any, dict[str, str]] = {subject: {} for subject in subjects}
    for verdict in verdicts:
        law = verdict.law
        for subject in subjects:
            known = causes[subject]
            cause = next((known[need] for need in (BUILDS, SPELLED, *law.needs) if need in known), None)
            # A condition may ask an encoding, which must then be one that can be built.
            reason = None if BUILDS in known else law.does_not_apply(subject)
            if reason:
                verdict.reason = reason
            elif cause:
                verdict.causes.append(cause)
                known[law.name] = cause
            else:
                finding = law.try_on(subject)
                verdict.findings.append((subject, finding))
                if not finding.passed:
                    known[law.name] = law.name
        report(verdict)
    return verdicts


@contextmanager
def captured() -> Iterator[StringIO]:
    """Collects stdout, stderr and warnings. Logs, and warnings of torch and the zoo, are dropped."""
    output, before = StringIO(), logging.root.manager.disable
    logging.disable()  # torch's log handlers keep the stderr of the time when they were made
    try:
        with redirect_stdout(output), redirect_stderr(output), warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.filterwarnings("ignore", module=r"(torch|zoo)\b")
            warnings.showwarning = lambda message, kind, file, line, *_: output.write(
                f"{file}:{line}: {kind.__name__}: {message}\n"
            )
            yield output
    finally:
        logging.disable(before)
