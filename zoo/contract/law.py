"""Laws, and how they are tried.

A law is a property that every subject must have: a name, a sentence, and a generator of findings. The first
finding that does not hold breaks the law, and so does an exception. Encodings, datasets and protocols have
laws of their own, which are all tried by `examine`.
"""

from __future__ import annotations

import logging
import random
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.registry import Description

Condition = Callable[[Any], "str | None"]
"""Why a law does not apply to a subject; None where it does."""


@dataclass(frozen=True)
class Finding:
    """Whether something held, the numbers, and how close they are to the bound."""

    held: bool
    numbers: str = ""
    share: float = 0.0
    """Fraction of the bound; above 1 the law is broken."""
    note: str = ""
    """A remark to show that is not a fault."""
    where: str = ""
    """File and line of the fault in the plugin, if known."""


Trial = Callable[[Any], Iterator[Finding]]


class Fault(Exception):
    """Raised inside a trial: the law is broken by the code at `where`."""

    def __init__(self, message: str, where: str = ""):
        super().__init__(message)
        self.where = where


def broken(numbers: str, where: str = "") -> Finding:
    return Finding(False, numbers, where=where)


def held(numbers: str = "") -> Finding:
    return Finding(True, numbers)


def within(difference: float, bound: float, what: str = "largest difference") -> Finding:
    """Held where a difference is at most its bound."""
    share = difference / bound if bound else difference
    return Finding(difference <= bound, f"{what} {difference:.2g} (bound {bound:.2g})", share)


def beyond(difference: float, bound: float, what: str) -> Finding:
    """Held where a difference is more than its bound."""
    share = bound / difference if difference else float("inf")
    return Finding(difference > bound, f"{what} {difference:.2g} (at least {bound:.2g})", share)


def farthest(actual: Tensor, expected: Tensor) -> float:
    """The largest absolute difference. Equal infinities differ by nothing; a NaN differs by infinity."""
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
    """Names of laws that must hold before this one is tried."""
    slow: bool = False
    """Takes many seconds where others take milliseconds: `check` tries it with `--all` only."""
    together: Callable[[Sequence[Any]], list[Finding]] | None = None
    """Tries several subjects at once, where that is cheaper."""

    def does_not_apply(self, subject: Any) -> str | None:
        """Why it does not apply to this subject; None where it does."""
        return next((why for condition in self.conditions if (why := condition(subject))), None)

    def try_on(self, subject: Any) -> Finding:
        """Try it on one subject, with a fixed seed and its own random state. An exception breaks the law."""
        findings = []
        with _isolated():
            try:
                for finding in self.trial(subject):
                    if not finding.held:
                        return finding
                    findings.append(finding)
            except Fault as fault:
                return broken(str(fault), fault.where)
            except (Exception, SystemExit) as error:  # whatever a plugin's code does
                return broken(first_line(error), line_of(error, subject.plugins))
        return max(findings, key=lambda one: one.share, default=held())

    def try_on_all(self, subjects: Sequence[Any]) -> list[Finding]:
        return self.together(subjects) if self.together and subjects else [*map(self.try_on, subjects)]


@contextmanager
def _isolated() -> Iterator[None]:
    """Own random state, and gradients enabled."""
    before = random.getstate()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.default_generator.manual_seed(0)
        random.seed(0)
        try:
            yield
        finally:
            random.setstate(before)


def first_line(error: BaseException) -> str:
    """An exception as one line of text."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def line_of(error: BaseException, plugins: Sequence[Description]) -> str:
    """File and line of the last code of a plugin that ran before an error; "" where none did."""
    files = {str(one.file) for one in plugins}
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{one.filename}:{one.lineno}" for one in frames if str(Path(one.filename).resolve()) in files]
    return lines[-1] if lines else ""


LAWS: list[Law] = []
"""Those of encodings, in the order in which they are tried and reported: a law after those that it needs."""

BUILDS = "it can be built"
SPELLED = "hook names are spelled correctly"
"""Laws that every other needs."""
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
    together: Callable[[Sequence[Any]], list[Finding]] | None = None,
    laws: list[Law] = LAWS,
) -> Callable[[Trial], Trial]:
    """Register a function as a law."""

    def decorate(trial: Trial) -> Trial:
        laws.append(Law(name, statement, trial, conditions, needs, slow, together))
        return trial

    return decorate


def only(reason: str, applies: Callable[[Any], bool]) -> Condition:
    """The condition that a subject is such; `reason` says why the law does not apply to others."""
    return lambda subject: None if applies(subject) else reason


@dataclass
class Verdict:
    """The results of one law on all subjects."""

    law: Law
    findings: list[tuple[Any, Finding]] = field(default_factory=list)
    needed: list[str] = field(default_factory=list)
    """The broken laws because of which it was not tried on other subjects."""
    why_not: str = ""
    """Why it does not apply to the rest."""
    output: str = ""
    """What was printed during the trials."""

    @property
    def broken(self) -> list[tuple[Any, Finding]]:
        return [(subject, finding) for subject, finding in self.findings if not finding.held]

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Its row of the table: name, result, how many subjects of how many keep it, numbers."""
        if self.needed and not self.broken:
            return self.law.name, "not tried", "", f"needs: {'; '.join(dict.fromkeys(self.needed))}"
        if not self.findings:
            return self.law.name, "does not apply", "", self.why_not
        _, worst = max(self.findings, key=lambda one: (not one[1].held, one[1].share))
        tried = f"{len(self.findings) - len(self.broken)} of {len(self.findings)}"
        return self.law.name, "held" if worst.held else "NOT HELD", tried, worst.numbers


def examine(
    subjects: Sequence[Any], laws: Sequence[Law], advance: Callable[[], object] = lambda: None
) -> list[Verdict]:
    """Every law on every subject to which it applies, and none that needs one which the subject breaks.

    Args:
        subjects: each has `plugins`, the descriptions of those that are no part of the zoo.
        laws: each after the laws that it needs; laws that are left out count as kept.
        advance: called after each law.
    """
    verdicts = []
    # Of each subject: the laws that it breaks or that were not tried, with the broken law that is the cause.
    causes: dict[Any, dict[str, str]] = {subject: {} for subject in subjects}
    for law in laws:
        verdict, applicable = Verdict(law), []
        for subject in subjects:
            known = causes[subject]
            cause = next((known[need] for need in (BUILDS, SPELLED, *law.needs) if need in known), None)
            # Conditions may ask an encoding, which must then be one that can be built.
            why_not = None if BUILDS in known else law.does_not_apply(subject)
            if why_not:
                verdict.why_not = why_not
            elif cause:
                verdict.needed.append(cause)
                known[law.name] = cause
            else:
                applicable.append(subject)
        with captured() as output:
            verdict.findings = [*zip(applicable, law.try_on_all(applicable), strict=True)]
        verdict.output = output.getvalue()
        for subject, _ in verdict.broken:
            causes[subject][law.name] = law.name
        verdicts.append(verdict)
        advance()
    return verdicts


@contextmanager
def captured() -> Iterator[StringIO]:
    """Collects stdout, stderr and warnings. Logs, and warnings of torch and the zoo, are dropped."""
    output, before = StringIO(), logging.root.manager.disable
    logging.disable()  # handlers of torch write to the stderr that was there when they were made
    try:
        with (
            redirect_stdout(output),
            redirect_stderr(output),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("default")
            warnings.filterwarnings("ignore", module=r"(torch|zoo)\b")
            yield output
    finally:
        logging.disable(before)
        output.writelines(f"{w.filename}:{w.lineno}: {w.category.__name__}: {w.message}\n" for w in warned)
