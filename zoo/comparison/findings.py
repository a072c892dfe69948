"""Findings: which encoding is ahead of which, at the trained length and at the one that decides the order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from zoo.comparison.formatting import display_name, panel_title, quoted, signed
from zoo.comparison.paired import FEWEST_SEEDS, Difference
from zoo.comparison.statistics import lengths_of

NAMED = 3
"""Up to so many encodings are named; of more the number, and the nearest."""
FEW = 5
"""From so many differences on, the verdict states that they are not corrected for their number."""


@dataclass(frozen=True)
class Finding:
    """The comparison at one length.

    Attributes:
        leader: the best encoding; empty where there is no ranking.
        ahead_of, tied_with: the others with a value, by rank, with how far they are behind the leader.
        absent: encodings without a value.
        why: why there is no ranking.
    """

    protocol: str
    measure: str
    length: int
    trained: bool
    leader: str
    ahead_of: dict[str, Difference]
    tied_with: dict[str, Difference]
    absent: tuple[str, ...]
    spread: float
    why: str


def findings(summary: pd.DataFrame) -> list[Finding]:
    """The findings of the first panel of a summary."""
    panel = summary[summary["panel"] == 0]
    found = []
    for length in dict.fromkeys(lengths_of(panel)):
        rows = panel[panel["length"] == length]
        there = rows[rows["mean"].notna()]
        why = next(iter(there["unranked"]), "") if len(there) > 1 else "one value"
        behind = {
            row.encoding: Difference(row.behind, row.behind_low, row.behind_high)
            for row in there.sort_values("behind", key=abs).itertuples()
            if not pd.isna(row.behind)
        }
        leader = next((one for one in there["encoding"] if one not in behind), "")
        rank = dict(zip(there["encoding"], there["rank"], strict=True))
        ahead = {label: one for label, one in behind.items() if rank[label] > 1}
        found.append(Finding(
            protocol=panel_title(rows),
            measure=display_name(rows.iloc[0]["measure"]), length=length,
            trained=set(rows["train_length"]) == {length}, leader=leader, ahead_of=ahead,
            tied_with={label: one for label, one in behind.items() if label not in ahead},
            absent=tuple(rows.loc[rows["mean"].isna(), "encoding"]),
            spread=float(there["mean"].max() - there["mean"].min()) if len(there) else 0.0, why=why,
        ))  # fmt: skip
    return found


def limits(summary: pd.DataFrame, found: Iterable[Finding], subject: str = "encoding") -> list[str]:
    """The basis of the findings."""
    panel = summary[summary["panel"] == 0]
    several = [one for finding in found for one in (*finding.ahead_of.values(), *finding.tied_with.values())]
    texts = []
    if interval := next(iter(panel["interval"].dropna()), ""):
        texts.append(f"in brackets the {interval} of the paired difference")
    if panel["count"].notna().any():
        count, counted = int(panel["count"].max()), panel["counted"].iloc[0]
        texts.append(f"{count:,} {counted if count > 1 else counted.removesuffix('s')}")
    seeds = set(panel["seeds"])
    if subject != "encoding":
        texts.append(f"this compares {subject}s, not their encodings")
    elif "seeds" in interval:
        texts.append(f"{min(seeds)} seeds {'each' if len(seeds) == 1 else 'or more'}")
    else:
        count = f"{min(seeds)} seed{'s' * (min(seeds) > 1)} {'each' if len(seeds) == 1 else 'of some'}"
        why = "too few to rank over" if min(seeds) < FEWEST_SEEDS else "not all with a value at every length"
        texts.append(f"{count}, {why}: another seed could change this")
    if len(several) >= FEW:
        texts.append(f"{len(several)} differences at 95 % each, not corrected for their number")
    return texts


def verdict(summary: pd.DataFrame, refused: int = 0, subject: str = "encoding") -> tuple[str, ...]:
    """The findings and their limits as the items of a list.

    Args:
        refused: the number of differences that make the runs not comparable.
    """
    found = findings(summary)
    first, labels = found[0], summary.loc[summary["panel"] == 0, "encoding"].unique()
    under = first.measure if first.measure == first.protocol else f"{first.measure} under {first.protocol}"
    if refused:
        return (
            f"none by {under}: these runs are not comparable (--force); any of the {refused} "
            f"differences listed above may be the cause instead of the encoding",
        )
    if len(labels) < 2:
        return (f"none by {under}: {quoted(labels[0])} alone was measured so",)
    return (*(f"{under} {_sentence(one)}" for one in found), *limits(summary, found, subject))


def _sentence(one: Finding) -> str:
    where = f"at {one.length} tokens{' (trained)' if one.trained else ''}:"
    behind = one.ahead_of | one.tied_with
    if not behind:
        return f"{where} {f'{quoted(one.leader)} alone has' if one.leader else 'no curve has'} a value"
    names = ", ".join(map(quoted, one.absent)) if len(one.absent) <= NAMED else f"{len(one.absent)} others"
    lacking = f" ({names} without a value there)" if one.absent else ""
    if one.why:
        means = f"the means of {len(behind) + 1} lie within {_size(one.spread)}"
        return f"{where} no ranking, no interval because {one.why}: {means}{lacking}"
    if not one.ahead_of:
        largest = max(one.tied_with.values(), key=lambda tie: abs(tie.value))
        every = "both" if len(behind) == 1 else f"all {len(behind) + 1}"
        return f"{where} {every} are tied (the best and the last differ by {_by(largest)}){lacking}"
    parts = [f"tied with {_listed(one.tied_with, len(behind), '({})')}"] if one.tied_with else []
    parts.append(f"ahead of {_listed(one.ahead_of, len(behind), 'by {}')}")
    return f"{where} {quoted(one.leader)} is {' and '.join(parts)}{lacking}"


def _listed(found: dict[str, Difference], count: int, how: str) -> str:
    """Encodings with their differences, the nearest first."""
    if len(found) <= NAMED:
        return ", ".join(f"{quoted(label)} {how.format(_by(one))}" for label, one in found.items())
    nearest, one = next(iter(found.items()))
    which = f"all {count} others" if len(found) == count else f"{len(found)} others"
    return f"{which} (the nearest is {quoted(nearest)}, by {_by(one)})"


def _by(one: Difference) -> str:
    """A distance and its interval, seen from the better one; the ends of a tie have their signs."""
    seen = one if one.value >= 0 else -one
    show = signed if one.sign == 0 else _size
    return f"{_size(seen.value)} [{show(seen.low)} to {show(seen.high)}]"


def _size(value: float) -> str:
    return signed(value).lstrip("+")
