"""Findings: which encoding is ahead of which, at the trained length and at the one that decides the order."""

from __future__ import annotations

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
        ahead_of, tied_with: the others with a value, the nearest first, with how far they are behind.
        absent: encodings without a value.
        spread: the largest mean less the smallest.
        why: why there is no ranking.
    """

    where: str
    leader: str
    ahead_of: dict[str, Difference]
    tied_with: dict[str, Difference]
    absent: tuple[str, ...]
    spread: float
    why: str

    def __str__(self) -> str:
        behind = self.ahead_of | self.tied_with
        if not behind:
            who = f"{quoted(self.leader)} alone" if self.leader else "no curve"
            return f"{self.where} {who} has a value"
        names = ", ".join(map(quoted, self.absent))
        names = names if len(self.absent) <= NAMED else f"{len(self.absent)} others"
        lacking = f" ({names} without a value there)" if names else ""
        if self.why:
            means = f"the means of {len(behind) + 1} lie within {_size(self.spread)}"
            return f"{self.where} no ranking, no interval because {self.why}: {means}{lacking}"
        if not self.ahead_of:
            last = max(self.tied_with.values(), key=lambda tie: abs(tie.value))
            every = "both" if len(behind) == 1 else f"all {len(behind) + 1}"
            return f"{self.where} {every} are tied (the best and the last differ by {_by(last)}){lacking}"
        parts = [f"tied with {_listed(self.tied_with, len(behind), '({})')}"] if self.tied_with else []
        parts.append(f"ahead of {_listed(self.ahead_of, len(behind), 'by {}')}")
        return f"{self.where} {quoted(self.leader)} is {' and '.join(parts)}{lacking}"


def findings(summary: pd.DataFrame) -> list[Finding]:
    """The findings of the first panel of a summary."""
    panel = summary[summary["panel"] == 0]
    found = []
    for length in dict.fromkeys(lengths_of(panel)):
        rows = panel[panel["length"] == length]
        there = rows[rows["mean"].notna()]
        nearest = there[there["behind"].notna()].sort_values("behind", key=abs)
        behind = {
            row.encoding: Difference(row.behind, row.behind_low, row.behind_high)
            for row in nearest.itertuples()
        }
        ahead = set(there.loc[there["rank"] > 1, "encoding"])
        trained = " (trained)" if set(rows["train_length"]) == {length} else ""
        found.append(Finding(
            where=f"{_measure(panel)} at {length} tokens{trained}:",
            leader=next((one for one in there["encoding"] if one not in behind), ""),
            ahead_of={label: one for label, one in behind.items() if label in ahead},
            tied_with={label: one for label, one in behind.items() if label not in ahead},
            absent=tuple(rows.loc[rows["mean"].isna(), "encoding"]),
            spread=float(there["mean"].max() - there["mean"].min()),
            why=there["unranked"].iloc[0] if len(there) > 1 else "",
        ))  # fmt: skip
    return found


def verdict(summary: pd.DataFrame, refused: int = 0, subject: str = "encoding") -> tuple[str, ...]:
    """The findings and their limits as the items of a list.

    Args:
        refused: the number of differences that make the runs not comparable.
    """
    panel, found = summary[summary["panel"] == 0], findings(summary)
    if refused:
        return (
            f"none by {_measure(panel)}: these runs are not comparable (--force); any of the {refused} "
            f"differences listed above may be the cause instead of the encoding",
        )
    if panel["encoding"].nunique() < 2:
        label = quoted(panel["encoding"].iloc[0])
        return (f"none by {_measure(panel)}: {label} alone was measured so",)
    texts, seeds = [str(one) for one in found], set(panel["seeds"])
    if interval := next(iter(panel["interval"].dropna()), ""):
        texts.append(f"in brackets the {interval} of the paired difference")
    if panel["count"].notna().any():
        count, counted = int(panel["count"].max()), panel["counted"].iloc[0]
        texts.append(f"{count:,} {counted if count > 1 else counted.removesuffix('s')}")
    if subject != "encoding":
        texts.append(f"this compares {subject}s, not their encodings")
    elif "seeds" in interval:
        texts.append(f"{min(seeds)} seeds {'each' if len(seeds) == 1 else 'or more'}")
    else:
        many = f"{min(seeds)} seed{'s' * (min(seeds) > 1)} {'each' if len(seeds) == 1 else 'of some'}"
        why = "too few to rank over" if min(seeds) < FEWEST_SEEDS else "not all with a value at every length"
        texts.append(f"{many}, {why}: another seed could change this")
    if (several := sum(len(one.ahead_of | one.tied_with) for one in found)) >= FEW:
        texts.append(f"{several} differences at 95 % each, not corrected for their number")
    return tuple(texts)


def _measure(panel: pd.DataFrame) -> str:
    measure, protocol = display_name(panel["measure"].iloc[0]), panel_title(panel)
    return measure if measure == protocol else f"{measure} under {protocol}"


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
