"""Findings: which encoding is ahead of which, at the trained length and at the one that decides the order."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from zoo.comparison.paired import FEWEST_SEEDS, Estimate
from zoo.comparison.statistics import lengths_of

FEW = 5
"""From so many differences on, the limits state that they are not corrected for their number."""


@dataclass(frozen=True)
class Finding:
    """The comparison at one length.

    Attributes:
        leader: the best encoding; empty where there is no ranking.
        ahead_of, tied_with: the others with a value, the nearest first, with their difference to the leader.
        absent: encodings without a value.
        why: why there is no ranking.
    """

    length: int
    is_trained: bool
    leader: str
    ahead_of: dict[str, Estimate]
    tied_with: dict[str, Estimate]
    absent: tuple[str, ...]
    why: str


def findings(summary: pd.DataFrame) -> list[Finding]:
    """The findings of the first panel of a summary."""
    panel, found = summary[summary["panel"] == 0], []
    for length in dict.fromkeys(lengths_of(panel)):
        rows = panel[panel["length"] == length]
        there, why = rows[rows["mean"].notna()], "; ".join({*rows["unranked"].dropna()} - {""})
        nearest = there[there["behind"].notna()].sort_values("behind", key=abs)
        behind = {
            row.encoding: Estimate(row.behind, row.behind_low, row.behind_high)
            for row in nearest.itertuples()
        }
        ahead = {*there.loc[there["rank"] > 1, "encoding"]}
        found.append(Finding(
            length=length,
            is_trained=set(rows["train_length"]) == {length},
            leader="" if why else next((one for one in there["encoding"] if one not in behind), ""),
            ahead_of={label: one for label, one in behind.items() if label in ahead},
            tied_with={label: one for label, one in behind.items() if label not in ahead and not why},
            absent=tuple(rows.loc[rows["mean"].isna(), "encoding"]),
            why=why,
        ))  # fmt: skip
    return found


def limits(summary: pd.DataFrame, subject: str = "encoding") -> tuple[str, ...]:
    """The limits of the findings: intervals, scored targets, seeds and number of differences."""
    panel, found, texts = summary[summary["panel"] == 0], findings(summary), []
    if interval := next(iter(panel["interval"].dropna()), ""):
        texts.append(f"in brackets the {interval} of the paired difference to the best")
    texts += [f"no ranking at {one.length}: {one.why}" for one in found if one.why]
    if panel["count"].notna().any():
        count, counted = int(panel["count"].max()), panel["counted"].iloc[0]
        texts.append(f"{count:,} {counted if count > 1 else counted.removesuffix('s')}")
    fewest = int(panel["seeds"].min())
    if subject != "encoding":
        texts.append(f"this compares {subject}s, not their encodings")
    elif "seeds" in interval:
        texts.append(f"{fewest} seeds or more")
    else:
        why = "too few to rank over" if fewest < FEWEST_SEEDS else "not all with a value at every length"
        texts.append(f"{fewest} seed{'s' * (fewest > 1)}, {why}: another seed could change this")
    if (several := sum(len(one.ahead_of | one.tied_with) for one in found)) >= FEW:
        texts.append(f"{several} differences at 95 % each, not corrected for their number")
    return tuple(texts)
