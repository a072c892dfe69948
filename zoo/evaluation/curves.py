"""Rows as curves: which of them are about the same thing, and may be joined by a line.

A panel is one protocol with its parameters. In it a curve is what one encoding gave on the same targets, over
lengths and seeds; where checkpoints, runs or targets differ, curves stand apart and their names say in what.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from zoo.errors import printable

Row = dict[str, Any]

MAIN = ("accuracy", "bits_per_byte", "loss_nats")
"""What a curve is about: the first of these that there is."""


@dataclass(frozen=True)
class Curve:
    """Rows that differ only in length and seed, in the order of their lengths; notes are among them."""

    label: str
    rows: tuple[Row, ...]
    ends: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Of each length at which it is known, the interval of the mean."""

    @property
    def seeds(self) -> int:
        return len({row.get("seed") for row in self.rows})

    def at(self, length: int) -> list[Row]:
        return [row for row in self.rows if row["length"] == length]

    def mean(self, length: int, measure: str) -> float | None:
        """Over seeds; None where nothing was measured, or where one of them is not finite."""
        values = [row.get(measure) for row in self.at(length) if "note" not in row]
        return sum(values) / len(values) if values and None not in values else None


@dataclass(frozen=True)
class Panel:
    """What one protocol with its parameters gave. `measure` is None where nothing was measured.

    `interval` says what the intervals of all its curves are, or why there are none.
    """

    protocol: str
    parameters: dict[str, Any]
    measure: str | None
    curves: tuple[Curve, ...]
    interval: str = ""

    @property
    def rows(self) -> list[Row]:
        return [row for curve in self.curves for row in curve.rows]

    @property
    def lengths(self) -> list[int]:
        return sorted({row["length"] for row in self.rows})

    @property
    def title(self) -> str:
        return protocol_text(self.protocol, self.parameters)


def panels(rows: Iterable[Row]) -> list[Panel]:
    """The panels of some rows, in the order in which the rows come."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault(kind_of(row), []).append(row)
    made = []
    for (protocol, parameters), own in groups.items():
        measure, curves = main_measure(own), _curves(own)
        # A curve of several seeds has no interval of its own kind here; none is shown beside it.
        if measure is not None and all(curve.seeds == 1 for curve in curves):
            curves = tuple(replace(curve, ends=_ends(curve, measure)) for curve in curves)
        known = any(curve.ends for curve in curves)
        unit = "examples" if measure == "accuracy" else "documents"
        interval = f"95 % interval over {unit}" if known else ""
        made.append(Panel(protocol, json.loads(parameters), measure, curves, interval))
    return made


def _ends(curve: Curve, measure: str) -> dict[int, tuple[float, float]]:
    found = {row["length"]: (row.get(f"{measure}_low"), row.get(f"{measure}_high")) for row in curve.rows}
    return {length: ends for length, ends in found.items() if None not in ends}


def main_measure(rows: Iterable[Row]) -> str | None:
    rows = list(rows)
    return next((name for name in MAIN if any(row.get(name) is not None for row in rows)), None)


def parameters_text(row: Row) -> str:
    """A protocol's parameters, the same text for the same parameters; rows of old have none."""
    return json.dumps(row.get("parameters") or {}, sort_keys=True)


def kind_of(row: Row) -> tuple[str, str]:
    """What the rows of one panel have in common: the protocol, and its parameters as text."""
    return str(row.get("protocol", "")), parameters_text(row)


def protocol_text(protocol: str, parameters: dict[str, Any]) -> str:
    """A protocol with its parameters: `sliding (stride 0.5)`."""
    told = ", ".join(f"{name.replace('_', ' ')} {value_text(value)}" for name, value in parameters.items())
    return printable(f"{protocol} ({told})" if told else protocol)


def scored(row: Row) -> str | None:
    """What a row's targets are called, so that rows on other targets stand apart; None if it does not tell.

    The targets of a text are the same at every length; of a task each length has its own examples, and only
    their number tells two sets apart.
    """
    if "note" in row:
        return None
    if "accuracy" in row:
        count = row.get("examples", row.get("samples"))
        return None if count is None else f"{count:,} examples"
    return row.get("targets") or (None if row.get("tokens") is None else f"{row['tokens']:,} tokens")


def _curves(rows: Sequence[Row]) -> tuple[Curve, ...]:
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        # Two runs of one encoding are two seeds of it only if nothing but the seed tells them apart.
        key = (row["encoding"], row.get("checkpoint"), scored(row))
        groups.setdefault(key, []).append(row)
    groups = _with_notes(groups)
    parted = [(key, part) for key, own in groups.items() for part in _by_run(own)]
    labels = _labels(parted)
    return tuple(
        Curve(label, tuple(sorted(part, key=lambda row: (row["length"], str(row.get("seed"))))))
        for label, (_, part) in sorted(zip(labels, parted, strict=True), key=lambda pair: pair[0])
    )


def _with_notes(groups: dict[tuple, list[Row]]) -> dict[tuple, list[Row]]:
    """A note has no targets: it goes to the largest curve of its encoding and checkpoint."""
    for key in [key for key in groups if key[2] is None]:
        others = [other for other in groups if other[:2] == key[:2] and other[2] is not None]
        if others and all("note" in row for row in groups[key]):
            groups[max(others, key=lambda other: len(groups[other]))].extend(groups.pop(key))
    return groups


def _by_run(rows: list[Row]) -> list[list[Row]]:
    """Apart by run where one seed was measured twice at a length."""
    places = [(row.get("seed"), row["length"]) for row in rows]
    if len(places) == len(set(places)):
        return [rows]
    runs: dict[object, list[Row]] = {}
    for row in rows:
        runs.setdefault(row.get("run"), []).append(row)
    return list(runs.values())


def _labels(parted: list[tuple[tuple, list[Row]]]) -> list[str]:
    """The encoding, and with it whatever else tells curves of it apart."""
    tellers: list[Callable[[tuple, list[Row]], str]] = [
        lambda key, rows: Path(str(key[1])).name,
        lambda key, rows: _targets_name(rows),
        lambda key, rows: str(key[2]),
        lambda key, rows: str(rows[0].get("run")),
    ]
    labels = []
    for key, rows in parted:
        rivals = [other for other in parted if other[0][0] == key[0] and other[1] is not rows]
        told = []
        for tell in tellers:
            own = tell(key, rows)
            same = [other for other in rivals if tell(*other) == own]
            if len(same) < len(rivals):
                told.append(own)
            rivals = same
        labels.append(printable(f"{key[0]} ({', '.join(told)})" if told else str(key[0])))
    return labels


def _targets_name(rows: list[Row]) -> str:
    counts = {
        f"{row[name]:,} {name}"
        for row in rows
        for name in ("tokens", "examples", "samples")
        if row.get(name) is not None and not ("accuracy" in row and name == "tokens")
    }
    return min(counts) if len(counts) == 1 else "other targets"


def value_text(value: object) -> str:
    """A parameter as all tables and messages have it."""
    return value if isinstance(value, str) else json.dumps(value)
