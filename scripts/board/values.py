"""All values: the wide table of the leaderboard's second page, and the rows of `values.csv`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from board.boards import FAR, NEAR, Boards, cost, costs
from board.measured import Measured, stored_name
from board.pairs import mean_over_seeds
from board.scores import Floors, highest
from board.text import DASH, table
from zoo.comparison.formatting import number, signed
from zoo.evaluation.interval import interval_of_mean

MEASURES = ("accuracy", "token_accuracy", "accuracy_beyond", "bits_per_byte", "loss_nats")


def values(study: str, rows: pd.DataFrame, summary: pd.DataFrame, protocols: Sequence[str]) -> pd.DataFrame:
    """The mean over seeds of each encoding (`name`), protocol, length and measure, with each seed.

    The interval is that of the summary, or for measures that have none there one over seeds.
    """
    kept = rows[rows["measure"].isin(MEASURES) & rows["value"].notna()]
    first = {name: index for index, name in enumerate((*protocols, *MEASURES))}
    order = ["name", "protocol", "measure", "length", "seed"]
    kept = kept.sort_values(
        order, key=lambda column: column.map(first) if column.name in order[1:3] else column
    )
    keys = ["name", "protocol", "length", "measure"]
    ends = {
        tuple(key): (low, high) for *key, low, high in summary[[*keys, "low", "high"]].itertuples(index=False)
    }
    found = []
    for key, own in kept.groupby(keys, sort=False):
        name, protocol, length, measure = key
        each = own["value"].to_numpy()
        mean = mean_over_seeds(each, most=1.0 if "accuracy" in measure else math.inf)
        low, high = ends.get(key, (mean.low, mean.high))
        found.append({
            "study": study, "encoding": name, "protocol": protocol, "measure": measure, "length": length,
            "times": length / own["train_length"].iloc[0], "value": mean.value, "low": low, "high": high,
            "seeds": " ".join(f"{value:.7g}" for value in each),
        })  # fmt: skip
    return pd.DataFrame(found)


def of_study(one: Measured, floors: Floors) -> pd.DataFrame:
    """The values of a study, with the floor of each score of a task."""
    found = values(one.title, one.rows, one.summary, one.study.protocols)
    if one.title not in floors:
        return found
    floor = [
        highest(floors, one.title, row.measure, row.length)[0]
        if row.measure in floors[one.title] else None
        for row in found.itertuples()
    ]  # fmt: skip
    return found.assign(floor=floor)


def csv(tables: Sequence[pd.DataFrame]) -> bytes:
    return pd.concat(tables).to_csv(index=False, float_format="%.7g", lineterminator="\n").encode()


def means_table(one: Measured, protocol: str, names: Sequence[str] = (), lengths: Sequence[int] = ()) -> str:
    """The mean over seeds at each length (whole answers, bits per byte or nats), the best encoding first."""
    names = names or one.encodings
    rows = {name: one.at_lengths(name, protocol).set_index("length")["mean"] for name in names}
    means = pd.DataFrame(rows).T.reindex(columns=lengths or one.study.lengths).dropna(how="all")
    means = means.sort_values([*reversed(means.columns)], ascending=not one.is_task, na_position="last")
    cells = means.map(
        lambda value: DASH if np.isnan(value) else f"{value:.2f}" if one.is_task else number(value)
    )
    heads = [f"{length} ({length / one.trained:g}x)" for length in means.columns]
    return table(["encoding", *heads], ([name, *row] for name, *row in cells.itertuples()))


def wide_table(boards: Boards) -> str:
    """A row for each encoding and columns at some multiples of the trained length."""
    names = dict.fromkeys([*boards.decoders(), *(name for one in boards.found for name in one.encodings)])
    columns: dict[str, list[str]] = {}

    def cell(one: Measured, name: str, factor: int) -> str:
        if (row := one.at(name, factor)) is None:
            return DASH
        return f"{row['mean']:.2f}" if one.is_task else number(row["mean"])

    for one in boards.found:
        for factor in (1, NEAR, FAR):
            if factor * one.trained in one.study.lengths:
                columns[f"{one.title} {factor}x"] = [cell(one, name, factor) for name in names]
        if "repeats" in one.study.protocols:
            columns["repeats beyond less within 1x"] = [_repeats(one, name) or DASH for name in names]
    columns["parameters"] = [boards.parameters(name) or DASH for name in names]
    columns["step time"] = [cost(name) or DASH for name in names]
    memory = {name: own["memory"] for name, own in costs().items()}
    columns["memory"] = [
        f"{memory[own]:.2f}" if (own := stored_name(name)) in memory else DASH for name in names
    ]
    return table(["encoding", *columns], zip(names, *columns.values(), strict=True))


def _repeats(one: Measured, name: str) -> str:
    """Bits per byte of repeated rare bigrams that are farther away than the trained length, less those of the
    nearer ones, with the interval over seeds; empty without a value."""
    changes = []
    for _, rows in one.measured(name, "repeats", "bits_per_byte").dropna(subset="value").groupby("seed"):
        sizes = [sum(one.report.results.units[row].columns()["bytes"]) for row in rows.index]
        beyond = (rows["length"] > one.trained).to_numpy()
        near, far = (np.average(rows["value"], weights=sizes * side) for side in (~beyond, beyond))
        changes.append(float(far - near))
    low, high = interval_of_mean(changes)
    if low is None or high is None:
        return signed(changes[0]) if changes else ""
    return f"{signed(float(np.mean(changes)))} ({signed(low)} to {signed(high)})"
