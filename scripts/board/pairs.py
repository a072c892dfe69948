"""Entries of a study beside those of another one that differs in a single setting: paired differences."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from board.measured import table
from results import Entry, Study
from zoo.comparison.formatting import signed
from zoo.evaluation.interval import combined, interval_of_mean, interval_of_rate_difference, interval_of_ratio

FACTORS = (1, 2, 4, 8)
Scores = tuple[np.ndarray, np.ndarray | None]
"""The right answers of examples, or the bits of documents, and the bytes of documents, [N] each."""


def pairs_of_entries(
    study: Study, others: Sequence[Study], stored: Path
) -> Iterator[tuple[str, list[tuple[Entry, Entry]]]]:
    """The stored entries of each encoding of a study, each with the entry of the same encoding and seed in
    one of the others."""
    known = {(one.encoding, one.seed): one for other in others for one in other.entries(stored)}
    entries = study.entries(stored)
    for name in dict.fromkeys(one.encoding for one in entries):
        own = [one for one in entries if one.encoding == name and (name, one.seed) in known]
        pairs = [(known[name, one.seed], one) for one in own]
        if pairs := [pair for pair in pairs if all(one.file.exists() for one in pair)]:
            yield name, pairs


def starts_table(study: Study, other: Study, stored: Path) -> str:
    """The accuracy of each entry from both starts, at multiples of the trained length; empty without one."""
    rows, heads = [], []
    for name, pairs in pairs_of_entries(study, [other], stored):
        for pair in pairs:
            heads = [f"from {_content(one)['recipe']['model']['init_std']:g}" for one in pair]
            rows.append([name, str(pair[0].seed), *map(_accuracies, pair)])
    return table(["encoding", "seed", *heads], rows) if rows else ""


def differences_table(study: Study, others: Sequence[Study], protocol: str, stored: Path) -> str:
    """The paired difference of each encoding to the same one in the other studies, by length, with a 95 %
    interval over seeds and documents or examples; empty without a pair."""
    rows, lengths = [], []
    for name, pairs in pairs_of_entries(study, others, stored):
        scores = [tuple(_scores(one, protocol) for one in pair) for pair in pairs]
        lengths = [
            length for length in study.lengths if all(length in one for pair in scores for one in pair)
        ]
        rows.append([name, *(_difference([(a[n], b[n]) for a, b in scores]) for n in lengths)])
    return table(["encoding", *map(str, lengths)], rows) if rows else ""


def _difference(seeds: Sequence[tuple[Scores, Scores]]) -> str:
    apart = np.array([after - before for (before, _), (after, _) in seeds])
    sizes = seeds[0][0][1]
    if sizes is None:
        values, over_units = apart.mean(1), interval_of_rate_difference(apart.mean(0))
    else:
        values, over_units = apart.sum(1) / sizes.sum(), interval_of_ratio(apart.mean(0), sizes)
    value = float(values.mean())
    low, high = combined(value, interval_of_mean(values), over_units)
    if low is None or high is None:
        return signed(value)
    return f"{signed(value)} ({signed(low)} to {signed(high)})"


def _scores(entry: Entry, protocol: str) -> dict[int, Scores]:
    (rows,) = (
        one["rows"]
        for one in _content(entry)["measurements"]
        if one["protocol"] == protocol and not one.get("changed") and "data" not in one["parameters"]
    )
    found = {}
    for units, row in ((row["units"], row) for row in rows if row.get("units")):
        if "scores" in units:
            found[row["length"]] = np.array([*map(float, units["scores"])]), None
        else:
            found[row["length"]] = np.array(units["nats"]) / math.log(2), np.array(units["bytes"], float)
    return found


def _accuracies(entry: Entry) -> str:
    found = {row["length"]: row["accuracy"] for row in _content(entry)["measurements"][0]["rows"]}
    return ", ".join(f"{found[factor * min(found)]:.2f}" for factor in FACTORS)


def _content(entry: Entry) -> dict:
    return json.loads(entry.file.read_text())
