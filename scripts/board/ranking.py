"""All encodings by all studies: the columns of the leaderboard, its order, its table and its figure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from board.measured import DASH, LEARNED, Measured, png, table
from zoo import registry
from zoo.comparison.formatting import number, signed
from zoo.comparison.statistics import NATS_LOST
from zoo.evaluation.interval import interval_of_mean
from zoo.figures.style import RC

COSTS = Path(__file__).resolve().parents[1] / "results" / "costs.json"


@dataclass(frozen=True)
class Ranking:
    """The encodings, the best first.

    Attributes:
        places: of the encodings, from 1; equal ones have the same.
        values: `Column.value` of the encodings in each ranked column, NaN for None.
        ranks: their relative ranks (0 to 1, small is good).
    """

    columns: list[Column]
    places: dict[str, int]
    values: pd.DataFrame
    ranks: pd.DataFrame

    def table(self) -> str:
        """All rows and columns, with footnotes for the cells without a value."""
        return self._table([*self.places], self.columns)

    def short_table(self, names: Collection[str], heads: Sequence[str]) -> str:
        """The same for some encodings and columns, without the text in brackets."""
        every = {one.head: one for one in self.columns}
        shown = [every[head] for head in heads if head in every]
        return self._table([name for name in self.places if name in names], shown, brief=True)

    def _table(self, names: Sequence[str], shown: Sequence[Column], brief: bool = False) -> str:
        notes: dict[str, int] = {}

        def cell(one: Column, name: str) -> str:
            if text := one.text(name):
                return text.partition(" (")[0] if brief else text
            return f"{DASH}<sup>{notes.setdefault(one.why_not(name), len(notes) + 1)}</sup>"

        places = [*self.places.values()]
        rows = [
            [
                f"{self.places[name]}{'=' * (places.count(self.places[name]) > 1)}",
                name,
                *(cell(one, name) for one in shown),
            ]
            for name in names
        ]
        below = "; ".join(f"<sup>{count}</sup> {reason}" for reason, count in notes.items())
        text = table(["place", "encoding", *(one.head for one in shown)], rows)
        return f"{text}\n\n{below}" if below else text

    def figure(self) -> bytes:
        """The values of the ranked columns, each coloured by its rank in the column, as PNG."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        values = self.values.to_numpy()
        ranks = np.where(np.isfinite(values), self.ranks, math.nan)
        rows, columns = values.shape
        size = (1.2 + 0.75 * columns, 0.8 + 0.2 * rows)
        with rc_context(RC):
            figure = Figure(figsize=size, layout="constrained")
            axes = figure.subplots()
            axes.imshow(ranks, cmap="viridis_r", aspect="auto", vmin=0, vmax=1)
            for (row, column), value in np.ndenumerate(values):
                text = f"{value:.2f}" if math.isfinite(value) else "" if math.isnan(value) else DASH
                color = "white" if ranks[row, column] > 0.5 else "black"
                axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color=color)
            axes.set_xticks(range(columns), [re.sub("[ _]", "\n", head) for head in self.values])
            axes.set_yticks(range(rows), [*self.places])
            axes.xaxis.tick_top()
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            return png(figure)


def ranking(found: Sequence[Measured]) -> Ranking:
    """The order is that of the mean relative ranks over the columns of decoders in which at least half of the
    encodings have a value."""
    every = (name for one in found for name in one.names.values())
    names = [*dict.fromkeys(name for name in every if name in registry.encodings.names())]
    made = columns(found)
    values = pd.DataFrame({one.head: [one.value(name) for name in names] for one in made}, names, dtype=float)
    values = values.dropna(axis=1, how="all")
    ascending = {one.head: one.ascending for one in made}
    ranks = values.apply(lambda column: column.rank(ascending=ascending[column.name], pct=True))
    counted = ranks.loc[:, 2 * ranks.notna().sum() >= len(names)]
    means = counted.mean(axis=1).fillna(1.0).round(6).sort_index().sort_values(kind="stable")
    places = means.rank(method="min").astype(int)
    return Ranking(made, places.to_dict(), values.loc[places.index], ranks.loc[places.index])


@dataclass(frozen=True)
class Column:
    """A column of the leaderboard.

    Attributes:
        text: the cell of an encoding; empty without a value.
        why_not: the reason why there is no value.
        value: to rank by; infinite for an encoding that did not learn the task or cannot be used at this
            length, None without a measurement and in a column that is not ranked.
    """

    head: str
    text: Callable[[str], str]
    why_not: Callable[[str], str]
    value: Callable[[str], float | None] = lambda name: None
    ascending: bool = True


def columns(found: Sequence[Measured]) -> list[Column]:
    """The columns for the studies that are measured."""
    made = []

    def add(one: Measured, head: str, factor: int, show: Callable[[pd.Series], str], ranked: bool) -> None:
        def text(name: str) -> str:
            row = one.at(name, factor)
            return show(row) if row is not None else ""

        def value(name: str) -> float | None:
            if name not in one.names.values():
                return None
            worst = -math.inf if one.is_task else math.inf
            row, trained = one.at(name, factor), one.at(name, 1)
            if row is None or (one.is_task and trained[one.measure] < LEARNED):
                return worst
            return float(row[one.measure])

        why_not = partial(one.why_not, factor=factor)
        made.append(Column(head, text, why_not, value if ranked else lambda name: None, not one.is_task))

    for one in found:
        if one.is_task:
            show = _with_tokens if one.measure == "token_accuracy" else lambda row: f"{row['mean']:.2f}"
            for factor in (1, 4):
                add(one, f"{one.study.name} {factor}x", factor, show, factor == 4 and one.kind == "decoder")
        elif one.study.name == "text":
            for factor in (1, 4, 32):
                add(one, f"text {factor}x", factor, _with_difference, factor == 4)
            for head, cell in (
                ("repeats beyond less within 1x", _repeats),
                ("effective length", _effective_length),
            ):
                made.append(Column(head, partial(cell, one), partial(one.why_not, factor=4)))
    decoders = [one for one in found if one.kind == "decoder"]
    models = [next((one for one in decoders if one.is_task == task), None) for task in (False, True)]
    counts = partial(_parameters, [one for one in models if one])
    made.append(Column("parameters", counts, lambda name: "not measured"))
    costs = {row["name"]: row for row in json.loads(COSTS.read_text())["rows"] if row.get("time")}
    for head, key in (("step time", "time"), ("memory", "memory")):
        text = {name: f"{row[key]:.2f}" for name, row in costs.items()}
        made.append(Column(head, lambda name, text=text: text.get(name, ""), lambda name: "not measured"))
    return made


def _with_tokens(row: pd.Series) -> str:
    return f"{row['mean']:.2f} ({row['token_accuracy']:.2f})"


def _with_difference(row: pd.Series) -> str:
    if math.isnan(row["difference_low"]):
        return number(row["mean"])
    ends = f"{signed(row['difference_low'])} to {signed(row['difference_high'])}"
    return f"{number(row['mean'])} ({signed(row['difference'])} [{ends}])"


def _parameters(models: Sequence[Measured], name: str) -> str:
    """The parameters relative to those of `none`: of the first model, and in brackets of the second."""
    known = [one.parameters for one in models if {name, "none"} <= one.parameters.keys()]
    ratios = [f"{one[name] / one['none']:.2f}" for one in known]
    return "".join([*ratios[:1], *(f" ({one})" for one in ratios[1:])])


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


def _effective_length(one: Measured, name: str) -> str:
    """The longest tested length up to which the loss of each length is kept; of seeds that differ, all."""
    losses = one.measured(name, "sliding", "loss_nats").pivot(index="length", columns="seed", values="value")
    losses = losses.reindex(one.study.lengths)
    if losses.empty or losses.loc[one.trained].isna().any():
        return ""

    def kept(loss: pd.Series) -> str:
        lost = [*loss.index[~(loss <= loss[one.trained] + NATS_LOST)]]
        return f"{max(loss.index[loss.index < lost[0]])}" if lost else f"≥ {max(loss.index)}"

    each = [kept(losses[seed]) for seed in losses]
    return kept(losses.mean(axis=1, skipna=False)) + f" ({', '.join(each)})" * (len({*each}) > 1)
