"""Write the pages of docs/results from the measurements that `scripts/results.py` has stored.

    python scripts/leaderboard.py                  # a page for each study, and the leaderboard
    python scripts/leaderboard.py --out DIR        # write the pages to another folder

A study compares the seeds of which all encodings are stored; without such a seed, those that are stored of
the first one. A page lists what is missing.
Nothing is computed again: run `scripts/results.py` to measure more.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import results
from board.correlation import correlation_figure, correlations
from board.measured import DASH, REFERENCE, Measured, read_measured, table
from board.questions import QUESTIONS, question_files
from zoo import registry
from zoo.comparison.effective_length import NATS_LOST, SHARE_KEPT
from zoo.comparison.formatting import number, signed
from zoo.evaluation.interval import interval_of_rate
from zoo.figures.curves import pictures
from zoo.files import atomic_write
from zoo.reports.text import markdown

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "results"
COSTS = ROOT / "scripts" / "results" / "costs.json"
SUCCESS = 0.95
"""A seed with at least this accuracy counts as a success."""
LEARNED = 0.8
"""An encoding with a smaller score at the trained length has not learned the task."""
FURTHER = {
    "accuracy_beyond": ("Beyond the trained length", "Accuracy where the answer lies there."),
    "token_accuracy": ("Token accuracy", "The share of an answer's tokens that are right."),
}
"""Measures that have a table of their own in a study of a task."""


def study_files(one: Measured) -> dict[str, bytes]:
    """The page of a study and its figure, by file name."""
    name, seeds = one.study.name, len(one.seeds)
    figure = pictures(one.drawn, one.report.title, [".png"])
    parts = [
        f"# {name}",
        f"`{one.study.base}`, {seeds} seed{'s' * (seeds > 1)}, trained at {one.trained} tokens "
        f"([study](../../scripts/studies), [measurements](../../scripts/results/{name}/measurements)).",
    ]
    if figure:
        parts.append(f"![Values by length in tokens for the ten most used encodings]({name}.png)")
    if rest := sorted(one.study.encodings.keys() - set(one.seeds)):
        parts.append(f"Left out until all their encodings are measured: seeds {_listed(rest)}.")
    if one.missing:
        parts.append(f"Not measured yet: {', '.join(one.missing)}.")
    if one.is_task:
        parts += ["## Success rate", success_table(one)]
        for measure, (head, note) in FURTHER.items():
            if one.summary[measure].notna().any() and measure in ("accuracy_beyond", one.measure):
                parts += [f"## {head}", note + " Means over seeds.", means_table(one, measure)]
    parts.append(markdown(one.report).partition("\n")[2].strip())
    page = "\n\n".join(parts) + "\n"
    return {f"{name}.md": page.encode()} | {name + ending: content for ending, content in figure.items()}


def success_table(one: Measured) -> str:
    """The share of seeds that succeed, with Wilson's interval, the median and each seed; at 1, 2, 4 and 8
    times the trained length."""
    lengths = [
        length for length in sorted(one.summary["length"].unique()) if length / one.trained in (1, 2, 4, 8)
    ]
    rows = []
    for name in dict.fromkeys(one.summary["name"]):
        cells = [name]
        for length in lengths:
            row = one.rows(name)
            values = [*row.loc[row["length"] == length, "values"].iloc[0].values()]
            if not values:
                cells.append(DASH)
                continue
            won = np.array([float(value >= SUCCESS) for value in values])
            low, high = interval_of_rate(won)
            each = ", ".join(f"{value:.2f}" for value in sorted(values, reverse=True))
            cells.append(
                f"{int(won.sum())} of {len(won)} ({low:.2f}–{high:.2f}), {np.median(values):.2f} ({each})"
            )
        rows.append(cells)
    note = (
        f"The share of seeds with an accuracy of at least {SUCCESS}, with Wilson's 95 % interval; the median "
        "accuracy, and in brackets the accuracy of each seed."
    )
    return f"{note}\n\n{table(['encoding', *map(str, lengths)], rows)}"


def means_table(one: Measured, measure: str) -> str:
    """The mean of another measure at each length where it has values, the best encoding first."""
    values = one.summary.pivot(index="name", columns="length", values=measure).dropna(axis=1, how="all")
    values = values.sort_values([*reversed(values.columns)], ascending=False)
    cells = values.map(lambda value: DASH if math.isnan(value) else f"{value:.2f}")
    return table(["encoding", *map(str, cells.columns)], ([name, *row] for name, *row in cells.itertuples()))


@dataclass(frozen=True)
class Column:
    """A column of the leaderboard: the text of a cell, and a value to rank by (None: not ranked)."""

    head: str
    text: Callable[[str], str]
    value: Callable[[str], float | None] = lambda name: None
    ascending: bool = True


def columns(found: Sequence[Measured], note: Callable[[str], str]) -> list[Column]:
    """The columns for the studies that are measured."""
    made = []

    def add(one: Measured, head: str, factor: int, show: Callable[[pd.Series], str], ranked: bool) -> None:
        def text(name: str) -> str:
            row = one.at(name, factor)
            return show(row) if row is not None else DASH + note(one.why_not(name, factor))

        def value(name: str) -> float | None:
            if name not in one.names.values():
                return None
            worst = -math.inf if one.is_task else math.inf
            row, trained = one.at(name, factor), one.at(name, 1)
            if row is None or (one.is_task and trained[one.measure] < LEARNED):
                return worst
            return float(row[one.measure])

        made.append(Column(head, text, value if ranked else lambda name: None, not one.is_task))

    for one in found:
        if one.is_task:
            show = _with_tokens if one.measure == "token_accuracy" else lambda row: f"{row['mean']:.2f}"
            for factor in (1, 4):
                add(one, f"{one.study.name} {factor}x", factor, show, factor == 4)
        elif one.study.name == "text":
            for factor in (1, 4, 32):
                add(one, f"text {factor}x", factor, _with_difference, factor == 4)
            for head, cell in (("repeats beyond 1x", _repeats), ("effective length", _effective_length)):

                def text(name: str, one: Measured = one, cell: Any = cell) -> str:
                    return cell(one, name) or DASH + note(one.why_not(name, 4))

                made.append(Column(head, text))
    costs = {row["name"]: row for row in json.loads(COSTS.read_text())["rows"] if row.get("time")}
    for head, key in (("step time", "time"), ("memory", "memory")):
        made.append(Column(head, lambda name, key=key: f"{costs[name][key]:.2f}" if name in costs else DASH))
    return made


def _with_tokens(row: pd.Series) -> str:
    return f"{row['mean']:.2f} ({row['token_accuracy']:.2f})"


def _with_difference(row: pd.Series) -> str:
    if math.isnan(row["difference_low"]):
        return number(row["mean"])
    ends = f"{signed(row['difference_low'])} to {signed(row['difference_high'])}"
    return f"{number(row['mean'])} ({signed(row['difference'])} [{ends}])"


def _repeats(one: Measured, name: str) -> str:
    """Bits per byte of repeated rare bigrams that are farther away than the trained length, weighted; empty
    without a value."""
    rows = one.rows(name, "repeats")
    rows = rows[(rows["length"] > one.trained) & rows["mean"].notna()]
    return number(float(np.average(rows["mean"], weights=rows["count"]))) if len(rows) else ""


def _effective_length(one: Measured, name: str) -> str:
    rows = one.rows(name, "fixed_targets")
    rows = rows[rows["effective_length"].notna()]
    if not len(rows):
        return ""
    return f"{'≥ ' * bool(rows.iloc[0]['effective_length_at_least'])}{int(rows.iloc[0]['effective_length'])}"


def leaderboard(found: Sequence[Measured], only: Iterable[str] | None = None) -> str:
    """The table of all encodings, the best first, with footnotes for the cells without a value.

    Args:
        only: show these encodings; their order stays that of the whole table.
    """
    notes: dict[str, int] = {}

    def note(reason: str) -> str:
        return f"<sup>{notes.setdefault(reason, len(notes) + 1)}</sup>"

    shown = columns(found, note)
    names = list(
        dict.fromkeys(
            name for one in found for name in one.names.values() if name in registry.encodings.names()
        )
    )
    ranks = mean_ranks(names, shown)
    places = {name: 1 + sum(other < ranks[name] for other in ranks.values()) for name in names}
    rows = [
        [
            str(places[name]) + "=" * (list(places.values()).count(places[name]) > 1),
            name,
            *(one.text(name) for one in shown),
        ]
        for name in sorted(names, key=lambda name: (ranks[name], name))
        if only is None or name in only
    ]
    below = "; ".join(f"<sup>{count}</sup> {reason}" for reason, count in notes.items())
    text = table(["place", "encoding", *(one.head for one in shown)], rows)
    return f"{text}\n\n{below}" if below else text


def mean_ranks(names: Sequence[str], shown: Sequence[Column]) -> dict[str, float]:
    """The mean of the relative ranks (0 to 1) of each encoding, over the ranked columns in which it
    and at least half of all encodings have a value."""
    ranks = pd.DataFrame(index=list(names))
    for one in shown:
        values = pd.Series({name: one.value(name) for name in names}, dtype=float)
        if 2 * values.notna().sum() >= len(names):
            ranks[one.head] = values.rank(ascending=one.ascending, pct=True)
    return ranks.mean(axis=1).fillna(1.0).round(6).to_dict()


LEGEND = f"""\
Tasks: accuracy, and in brackets the share of the tokens of an answer that are right, given those before.
Text: bits per byte, with the paired difference to {REFERENCE} and its 95 % interval.
1x, 4x and 32x are multiples of the trained length. `repeats beyond 1x`: bits per byte of tokens that
complete a rare bigram seen farther back than the trained length. Effective length: the longest tested
length up to which an accuracy keeps {SHARE_KEPT:g} of its value at the trained length, or a loss rises
by at most {NATS_LOST:g} nats. Step time and memory are those of a training step relative to `none`.

Order: the mean of the relative ranks in those columns at 4x in which at least half of the encodings have
a value. A column with shares of tokens is ranked by them. Last in a column, and equal, are the encodings
that cannot be used at that length, and those that did not learn the task (less than {LEARNED:g} at 1x).
Equal places have a `=`. Differences in a column that are smaller than the intervals on the pages of the
studies do not decide an order."""
CORRELATION = """\
Spearman's rank correlation over encodings between the loss on text (negated, at 4x) and the accuracy of
each task (at 4x; in shares of tokens where answers have several), with a 95 % interval by bootstrap over
encodings."""


def leaderboard_page(found: Sequence[Measured]) -> str:
    seeds = "; ".join(f"{one.study.name} {len(one.seeds)}" for one in found)
    links = [f"- [{one.study.name}]({one.study.name}.md): {one.report.verdict}" for one in found]
    parts = [
        "# Leaderboard",
        "All encodings in one training setup. The models are small and trained for minutes on a CPU: the\n"
        "table shows how encodings fail beyond the trained length, not which one a large model should use.",
        leaderboard(found),
        LEGEND,
        f"Seeds: {seeds}.",
    ]
    if rows := correlations(found):
        figure = "![Loss on text and score of each task](text_and_tasks.png)"
        parts += ["## Does perplexity predict the tasks?", CORRELATION, figure, rows]
    parts += ["## Studies", "\n".join(links)]
    return "\n\n".join(parts) + "\n"


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, metavar="DIR", default=OUT, help="the folder of the pages")
    parser.add_argument(
        "--stored", type=Path, metavar="DIR", default=results.OUT, help="the stored measurements"
    )
    options = parser.parse_args(argv)
    out, stored = options.out.resolve(), options.stored.resolve()
    studies = results.read_studies(results.STUDIES)
    found = [one for study in studies if study.leaderboard and (one := read_measured(study, stored))]
    files = {"leaderboard.md": leaderboard_page(found).encode()}
    for one in found:
        files |= study_files(one)
    for name in QUESTIONS:
        files |= question_files(name, studies, stored)
    if figure := correlation_figure(found):
        files["text_and_tasks.png"] = figure
    for name, content in files.items():
        atomic_write(out / name, content)
    print(f"{len(found)} studies: {out / 'leaderboard.md'}")


if __name__ == "__main__":
    main()
