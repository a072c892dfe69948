"""All values: the wide table of the leaderboard's second page, and the rows of `values.csv`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from board.boards import FAR, NEAR, Boards, cost, share
from board.floors import Floors, highest
from board.measured import Measured
from zoo.comparison.formatting import number, signed
from zoo.comparison.paired import mean_over_seeds
from zoo.reports.text import markdown_table

MEASURES = ("accuracy", "token_accuracy", "accuracy_beyond", "bits_per_byte", "loss_nats")


def values(one: Measured, floors: Floors) -> pd.DataFrame:
    """The mean over seeds of each encoding, protocol, length and measure of a study, with each seed, and of a
    task the floor. The interval is that of the summary, or for measures that have none there one over seeds.
    """
    rows = one.rows[one.rows["measure"].isin(MEASURES) & one.rows["value"].notna()]
    first = {name: index for index, name in enumerate((*one.study.protocols, *MEASURES))}
    rows = rows.sort_values(
        ["encoding", "protocol", "measure", "length", "seed"],
        key=lambda column: column.map(first) if column.name in ("protocol", "measure") else column,
    )
    keys = ["encoding", "protocol", "length", "measure"]
    ends = one.summary.set_index(keys)[["low", "high"]]
    found = []
    for key, own in rows.groupby(keys, sort=False):
        name, protocol, length, measure = key
        mean = mean_over_seeds(own["value"].to_numpy(), 1.0 if "accuracy" in measure else math.inf)
        low, high = ends.loc[key] if key in ends.index else (mean.low, mean.high)
        found.append({
            "study": one.title, "encoding": name, "protocol": protocol, "measure": measure, "length": length,
            "times": length / own["train_length"].iloc[0], "value": mean.value, "low": low, "high": high,
            "seeds": " ".join(f"{value:.7g}" for value in own["value"]),
        })  # fmt: skip
        if one.title in floors:
            known = measure in floors[one.title]
            found[-1]["floor"] = highest(floors, one.title, measure, length)[0] if known else None
    return pd.DataFrame(found)


def csv(tables: Sequence[pd.DataFrame]) -> bytes:
    return pd.concat(tables).to_csv(index=False, float_format="%.7g", lineterminator="\n").encode()


def means_table(boards: Boards, one: Measured, names: Sequence[str] = (), lengths: Sequence[int] = ()) -> str:
    """The mean over seeds at each length (whole answers, bits per byte or nats), the best encoding first.

    Of a task the first row is the floor of whole answers.
    """
    means = one.means().loc[[*(names or one.encodings)]]
    means = means.reindex(columns=lengths or one.study.lengths).dropna(how="all")
    means = means.sort_values([*reversed(means.columns)], ascending=not one.is_task, na_position="last")
    rows = [*means.map(share if one.is_task else number).itertuples()]
    if one.is_task:
        floors = boards.floors_of(one)["accuracy"]
        each = [floors.get(str(length), {}).values() for length in means.columns]
        rows.insert(0, ("*the floor*", *(share(max(own)) if own else "" for own in each)))
    heads = [f"{length} ({length / one.trained:g}x)" for length in means.columns]
    return markdown_table(["encoding", *heads], rows)


def wide_table(boards: Boards) -> str:
    """A row for each encoding and columns at some multiples of the trained length."""
    names = [*dict.fromkeys([*boards.decoders(), *(name for one in boards.found for name in one.encodings)])]
    columns: dict[str, list[str]] = {}
    for one in boards.found:
        means, form = one.means().reindex(names), share if one.is_task else number
        for factor in (1, NEAR, FAR):
            if (length := factor * one.trained) in one.study.lengths:
                columns[f"{one.title} {factor}x"] = [form(value) for value in means[length]]
        if "repeats" in one.study.protocols:
            columns["repeats beyond less within 1x"] = [repeats(one, name) for name in names]
    columns["parameters"] = [boards.parameters(name) for name in names]
    columns["step time"] = [cost(name) for name in names]
    columns["memory"] = [cost(name, "memory") for name in names]
    return markdown_table(["encoding", *columns], zip(names, *columns.values(), strict=True))


def repeats(one: Measured, name: str) -> str:
    """Bits per byte of repeated rare bigrams that are farther away than the trained length, less those of the
    nearer ones, with the interval over seeds; empty without a value."""
    rows = one.rows[(one.rows["encoding"] == name) & (one.rows["protocol"] == "repeats")]
    rows = rows[(rows["measure"] == "bits_per_byte") & rows["value"].notna()]
    changes = []
    for _, own in rows.groupby("seed"):
        sizes = np.array([sum(one.results.units[row].columns()["bytes"]) for row in own.index])
        far = (own["length"] > one.trained).to_numpy()
        beyond, within = (np.average(own["value"], weights=sizes * side) for side in (far, ~far))
        changes.append(float(beyond - within))
    return mean_over_seeds(changes, math.inf, least=-math.inf).text(signed) if changes else ""
