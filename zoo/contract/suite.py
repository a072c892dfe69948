"""Try laws on subjects: the results, and which laws were skipped and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zoo.contract.law import BUILDS, Finding, Law, all_of
from zoo.contract.small_model import Subject


@dataclass
class Verdict:
    """The results of one law on all subjects of an encoding."""

    law: Law
    findings: list[tuple[Subject, Finding]] = field(default_factory=list)
    stopped: list[tuple[Subject, str]] = field(default_factory=list)
    """Subjects on which it was not tried, each with the broken law that it needs."""
    why_not: str = ""
    """Why it does not apply to the others."""

    @property
    def broken(self) -> list[tuple[Subject, Finding]]:
        return [(subject, finding) for subject, finding in self.findings if not finding.held]

    @property
    def word(self) -> str:
        if self.broken:
            return "NOT HELD"
        if self.stopped:
            return "not tried"
        return "held" if self.findings else "does not apply"

    @property
    def numbers(self) -> str:
        if self.stopped and not self.broken:
            return f"needs: {'; '.join(dict.fromkeys(cause for _, cause in self.stopped))}"
        return all_of([finding for _, finding in self.findings]).numbers if self.findings else self.why_not

    @property
    def tried(self) -> str:
        return f"{len(self.findings) - len(self.broken)} of {len(self.findings)}" if self.findings else ""


def examine(
    subjects: Sequence[Subject], laws: Sequence[Law], advance: Callable[[int], object] = lambda count: None
) -> list[Verdict]:
    """Every law on every subject to which it applies, and none that needs one which the subject breaks.

    Args:
        laws: each after the laws that it needs; laws that are left out count as kept.
        advance: called with the number of (law, subject) pairs that are done.
    """
    verdicts = []
    # For each subject: the laws that it breaks, and those that were not tried because of them.
    causes: dict[Subject, dict[str, str]] = {subject: {} for subject in subjects}
    for law in laws:
        verdict = Verdict(law)
        verdicts.append(verdict)
        applicable = []
        for subject in subjects:
            known = causes[subject]
            cause = next((known[need] for need in (BUILDS, *law.needs) if need in known), None)
            # The conditions of a law need an encoding that can be built.
            why_not = None if BUILDS in known or law.name == BUILDS else law.does_not_apply(subject)
            if why_not is not None:
                verdict.why_not = verdict.why_not or why_not
            elif cause is not None:
                verdict.stopped.append((subject, cause))
                known[law.name] = cause
            else:
                applicable.append(subject)
        for some in [applicable] if law.together else [[subject] for subject in applicable]:
            if some:
                verdict.findings += zip(some, law.try_on_all(some), strict=True)
                advance(len(some))
        for subject, _ in verdict.broken:
            causes[subject][law.name] = law.name
        advance(len(subjects) - len(applicable))
    return verdicts
