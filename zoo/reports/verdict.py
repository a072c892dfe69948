"""What a comparison comes to, in one sentence: who is ahead of whom and by how much, who is tied, and the
limits of it."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.reports.formatting import display_name, protocol_text, quoted, signed
from zoo.reports.panels import best_at
from zoo.reports.report import Difference, Panel, Report

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
    lengths = list(dict.fromkeys((panel.trained, panel.decisive)))
    parts = [*(_at(panel, length) for length in lengths), *_limits(panel, lengths)]
    return f"Verdict: by {under}, {'; '.join(parts)}."


def _at(panel: Panel, length: int) -> str:
    index = panel.lengths.index(length)
    means = {curve.label: curve.mean[index] for curve in panel.curves}
    there = {label: mean for label, mean in means.items() if mean is not None}
    absent = [label for label in means if label not in there]
    where = f"at {length} tokens{' (trained)' if panel.train_lengths == (length,) else ''}"
    if len(there) < 2:
        alone = f"{quoted(next(iter(there)))} alone has" if there else f"no {panel.subject} has"
        return f"{where} {alone} a value"
    named = ", ".join(map(quoted, absent)) if len(absent) <= NAMED else f"{len(absent)} others"
    lacking = f" ({named} without a value there)" if absent else ""
    if why := panel.why_unranked(length):
        apart = _size(max(there.values()) - min(there.values()))
        means = f"the means of {len(there)} lie within {apart}"
        return f"{where} no ranking, no interval because {why}: {means}{lacking}"
    leader = best_at(panel, length)
    others = {label: panel.between(length, leader, label) for label in there if label != leader}
    ahead = {label: one for label, one in others.items() if panel.is_better(one)}
    tied = {label: one for label, one in others.items() if label not in ahead}
    if not ahead:
        every = "both" if len(there) == 2 else f"all {len(there)}"
        return f"{where} {every} are tied{_tie_size(tied)}{lacking}"
    said = [f"tied with {_listed(tied, len(others), '({})')}"] if tied else []
    said.append(f"ahead of {_listed(ahead, len(others), 'by {}')}")
    return f"{where} {quoted(leader)} is {' and '.join(said)}{lacking}"


def _listed(found: dict[str, Difference], count: int, apart: str) -> str:
    """Each encoding with its difference and interval where they are few, else the nearest."""
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
    show = signed if one.sign == 0 else _size
    return f"{_size(seen.value)} [{show(seen.low)} to {show(seen.high)}]"


def _size(value: float) -> str:
    return signed(value).lstrip("+")


def _limits(panel: Panel, lengths: Sequence[int]) -> list[str]:
    """What the sentence does not say, and a reader must not read into it."""
    said = []
    counts = [count for curve in panel.curves for count in curve.counts if count is not None]
    if any(one.sign is not None for (at, _, _), one in panel.pairs.items() if at in lengths):
        said.append(f"in brackets the {panel.interval} of the paired difference")
    if counts:
        said.append(
            f"{max(counts):,} {panel.counted if max(counts) > 1 else panel.counted.removesuffix('s')}"
        )
    seeds = {curve.seeds for curve in panel.curves}
    if panel.subject != "encoding":
        said.append(f"this is about these {panel.subject}s, and tells nothing of their encodings")
    elif "seeds" in panel.interval:
        said.append(f"{min(seeds)} seeds {'each' if len(seeds) == 1 else 'or more'}")
    else:
        said.append(f"one seed {'each' if len(seeds) == 1 else 'of some'}: another seed could change this")
    compared = sum(panel.between(length, best_at(panel, length), curve.label) is not None
                   for length in lengths for curve in panel.curves)  # fmt: skip
    if compared >= FEW:
        said.append(f"{compared} differences at 95 % each, not corrected for their number")
    return said
