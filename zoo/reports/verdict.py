"""What a comparison comes to, in one sentence: who is ahead of whom and by how much, who is tied, and the
limits of it."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.reports.formatting import display_name, protocol_text, quoted, signed
from zoo.reports.ranking import best_at
from zoo.reports.report import Curve, Difference, Panel, Report

NAMED = 3
"""Encodings that are named one by one; of more the number, and the nearest."""
FEW = 5
"""Differences from which on their number is a limit of its own."""


def verdict(report: Report) -> str:
    """The sentence, about the first panel, at the trained length and at the one that decides the order."""
    panel = report.panels[0]
    measure, protocol = display_name(panel.measure), protocol_text(panel.protocol, panel.parameters)
    under = measure if measure == protocol else f"{measure} under {protocol}"
    if report.differences:
        return (
            f"Verdict: none by {under}: these runs are not comparable (--force), and what separates them may "
            f"be any of the {len(report.differences)} differences listed above instead of the encoding."
        )
    if len(panel.curves) < 2:
        return f"Verdict: none by {under}: {quoted(panel.curves[0].label)} alone was measured so."
    at = [_at(panel, length) for length in dict.fromkeys((panel.trained, panel.decisive))]
    return f"Verdict: by {under}, {'; '.join([*at, *_limits(panel)])}."


def _at(panel: Panel, length: int) -> str:
    index = panel.lengths.index(length)
    there = [curve for curve in panel.curves if curve.mean[index] is not None]
    absent = [curve.label for curve in panel.curves if curve.mean[index] is None]
    where = f"at {length} tokens{' (trained)' if panel.train_lengths == (length,) else ''}"
    lacking = f" ({_listed(absent)} without a value there)" if absent else ""
    if len(there) < 2:
        return f"{where} {quoted(there[0].label) + ' alone has' if there else 'no encoding has'} a value"
    leader = best_at(panel, length)
    others = {
        curve.label: panel.between(length, leader, curve.label) for curve in there if curve.label != leader
    }
    unknown = list(dict.fromkeys(one.why for one in others.values() if one.sign is None))
    if unknown:
        why = "; ".join(unknown)
        return f"{where} no ranking, no interval because {why}: {_apart(there, index)}{lacking}"
    ahead = {label: one for label, one in others.items() if panel.is_better(one)}
    tied = {label: one for label, one in others.items() if label not in ahead}
    if not ahead:
        every = "both" if len(there) == 2 else f"all {len(there)}"
        return f"{where} {every} are tied{_tie_size(tied)}{lacking}"
    said = [f"ahead of {_named_or_counted(ahead, len(others), 'by {}')}"]
    if tied:
        said.insert(0, f"tied with {_named_or_counted(tied, len(others), '({})')}")
    return f"{where} {quoted(leader)} is {' and '.join(said)}{lacking}"


def _named_or_counted(found: dict[str, Difference], count: int, apart: str) -> str:
    """Some encodings, the nearest with its difference and interval, or each where they are few."""
    by_distance = sorted(found, key=lambda label: abs(found[label].value))
    if len(found) <= NAMED:
        return ", ".join(f"{quoted(label)} {apart.format(_by(found[label]))}" for label in by_distance)
    nearest = by_distance[0]
    which = f"all {count} others" if len(found) == count else f"{len(found)} others"
    return f"{which} (the nearest is {quoted(nearest)}, by {_by(found[nearest])})"


def _tie_size(tied: dict[str, Difference]) -> str:
    """How large the differences are that may be none."""
    if all(one.value == 0 for one in tied.values()):
        high = max(one.high for one in tied.values())
        return f" (no difference at all; interval {signed(-high)} to {signed(high)})"
    largest = max(tied.values(), key=lambda one: abs(one.value))
    return f" (the best and the last differ by {_by(largest)})"


def _by(one: Difference) -> str:
    """A distance and its interval, seen from the better one."""
    seen = one if one.value >= 0 else -one
    # A tie goes both ways: there the sign of the ends tells.
    show = signed if one.sign == 0 else (lambda value: signed(value).lstrip("+"))
    return f"{signed(seen.value).lstrip('+')} [{show(seen.low)} to {show(seen.high)}]"


def _apart(there: Sequence[Curve], index: int) -> str:
    means = [curve.mean[index] for curve in there]
    return f"the means of {len(there)} lie within {signed(max(means) - min(means)).lstrip('+')}"


def _limits(panel: Panel) -> list[str]:
    """What the sentence does not say, and a reader must not read into it."""
    lengths = list(dict.fromkeys((panel.trained, panel.decisive)))
    said = []
    counts = [count for curve in panel.curves for count in curve.counts if count is not None]
    counted = f"{max(counts):,} {panel.counted}" if counts and panel.counted else ""
    if any(one.sign is not None for (at, _, _), one in panel.pairs.items() if at in lengths):
        said.append(f"in brackets the {panel.interval} of the paired difference")
    if counted:
        said.append(counted if max(counts) > 1 else counted.removesuffix("s"))
    fewest = min(curve.seeds for curve in panel.curves)
    if "seeds" in panel.interval:
        said.append(f"{fewest} seeds each" if _same_seed_count(panel) else f"{fewest} seeds or more")
    else:
        seeds = "one seed each" if _same_seed_count(panel) else "one seed of some"
        said.append(f"{seeds}: another seed could change this")
    compared = sum(panel.between(length, best_at(panel, length), curve.label) is not None
                   for length in lengths for curve in panel.curves)  # fmt: skip
    if compared >= FEW:
        said.append(f"{compared} differences at 95 % each, not corrected for their number")
    return said


def _same_seed_count(panel: Panel) -> bool:
    return len({curve.seeds for curve in panel.curves}) == 1


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(map(quoted, labels)) if len(labels) <= NAMED else f"{len(labels)} others"
