"""Laws tried on subjects: what came of each, and what there was no point in trying."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zoo.contract.law import BUILDS, Finding, Law, all_of
from zoo.contract.small_model import Subject


@dataclass
class Verdict:
    """What came of one law on all subjects of an encoding."""

    law: Law
    findings: list[tuple[Subject, Finding]] = field(default_factory=list)
    stopped: list[tuple[Subject, str]] = field(default_factory=list)
    """Where it was not tried, and the broken law that it needs."""
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
        laws: in an order in which what a law needs stands before it; of those left out nothing is needed.
        advance: is told how many pairs of law and subject are done with.
    """
    verdicts = []
    # For each subject the laws that it breaks, and those that were not tried because of them.
    causes: dict[Subject, dict[str, str]] = {subject: {} for subject in subjects}
    for law in laws:
        verdict = Verdict(law)
        verdicts.append(verdict)
        concerned = []
        for subject in subjects:
            known = causes[subject]
            cause = next((known[need] for need in (BUILDS, *law.needs) if need in known), None)
            # Of what cannot be built nothing can be asked.
            why_not = None if BUILDS in known or law.name == BUILDS else law.does_not_apply(subject)
            if why_not is not None:
                verdict.why_not = verdict.why_not or why_not
            elif cause is not None:
                verdict.stopped.append((subject, cause))
                known[law.name] = cause
            else:
                concerned.append(subject)
        for some in [concerned] if law.together else [[subject] for subject in concerned]:
            if some:
                verdict.findings += zip(some, law.try_on_all(some), strict=True)
                advance(len(some))
        for subject, _ in verdict.broken:
            causes[subject][law.name] = law.name
        advance(len(subjects) - len(concerned))
    return verdicts
