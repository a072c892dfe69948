"""Write the pages of docs/results from the measurements that `scripts/results.py` has stored.

    python scripts/leaderboard.py                  # a page for each study, and the leaderboard
    python scripts/leaderboard.py --out DIR        # write the pages to another folder

A study compares the seeds of which all encodings are stored; without such a seed, the stored entries of the
first one. A page lists the missing encodings.
Nothing is computed again: run `scripts/results.py` to measure more.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import results
from board.correlation import correlation_figure, correlations
from board.measured import DASH, REFERENCE, SHOWN, Measured, curves, read_measured, table
from board.questions import QUESTIONS, question_files
from board.ranking import LEARNED, ranking
from zoo.comparison.statistics import NATS_LOST
from zoo.evaluation.interval import interval_of_rate
from zoo.files import atomic_write
from zoo.reports.text import markdown

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "results"
SUCCESS = 0.95
"""A seed with at least this accuracy counts as a success."""
FURTHER = {
    "accuracy_beyond": ("Beyond the trained length", "Accuracy where the answer lies there."),
    "token_accuracy": ("Token accuracy", "The share of an answer's tokens that are right."),
}
"""Measures that have a table of their own in a study of a task."""
SHORT = ("text 1x", "text 4x", "text 32x", "max_index 4x", "flip_flop 4x", "selective_copy 4x",
         "associative_recall 4x", "step time")  # fmt: skip
"""The columns of the table in the README."""


def study_files(one: Measured) -> dict[str, bytes]:
    """The page of a study and its figure, by file name."""
    name, seeds = one.study.name, len(one.seeds)
    drawn = one.drawn
    figures = curves(name, drawn, one.report.title)
    if drawn["protocol"].nunique() > 1:  # the first alone, for the README
        figures |= curves(f"{name}_lengths", drawn[drawn["protocol"] == drawn.iloc[0]["protocol"]])
    parts = [
        f"# {name}",
        f"`{one.study.base}`, {seeds} seed{'s' * (seeds > 1)}, trained at {one.trained} tokens "
        f"([study](../../scripts/studies), [measurements](../../scripts/results/{name}/measurements)).",
    ]
    if figures:
        parts.append(f"![Values by length in tokens for the ten most used encodings]({name}.png)")
    if rest := sorted(one.study.encodings.keys() - set(one.seeds)):
        parts.append(f"Left out until all their encodings are measured: seeds {', '.join(map(str, rest))}.")
    if one.missing:
        parts.append(f"Not measured yet: {', '.join(one.missing)}.")
    if one.is_task:
        parts += ["## Success rate", success_table(one)]
        for measure, (head, note) in FURTHER.items():
            if one.summary[measure].notna().any() and measure in ("accuracy_beyond", one.measure):
                parts += [f"## {head}", note + " Means over seeds.", means_table(one, measure)]
    parts.append(markdown(one.report).partition("\n")[2].strip())
    page = "\n\n".join(parts) + "\n"
    return figures | {f"{name}.md": page.encode()}


def success_table(one: Measured) -> str:
    """The share of seeds that succeed, with Wilson's interval, the median and each seed; at 1, 2, 4 and 8
    times the trained length."""
    lengths = [
        length for length in sorted(one.summary["length"].unique()) if length / one.trained in (1, 2, 4, 8)
    ]
    rows = []
    for name in dict.fromkeys(one.summary["name"]):
        own, cells = one.rows(name).set_index("length")["values"], [name]
        for length in lengths:
            values = [*own[length].values()]
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


LEGEND = f"""\
Tasks: accuracy, and in brackets the share of the tokens of an answer that are right, given those before.
Text: bits per byte, with the paired difference to {REFERENCE} and its 95 % interval.
1x, 4x and 32x are multiples of the trained length. `repeats beyond 1x`: bits per byte of tokens that
complete a rare bigram seen farther back than the trained length. Effective length: the longest tested
length of text up to which the loss under `fixed_targets` rises by at most {NATS_LOST:g} nats; few documents
are that long. Step time and memory are those of a training step relative to `none`. `drope`, whose schedule
begins with the checkpoint of another encoding, is trained without positions from the start here: it differs
from `none` beyond 1x only.

Order: the mean of the relative ranks in those columns at 4x in which at least half of the encodings have
a value. A column with shares of tokens is ranked by them. Last in a column, and equal, are the encodings
that cannot be used at that length, and the ones that did not learn the task (less than {LEARNED:g} at 1x).
Equal places have a `=`. Differences in a column that are smaller than the intervals on the pages of the
studies do not decide an order."""
CORRELATION = """\
Spearman's rank correlation over encodings between the loss on text (negated, at 4x) and the accuracy of
each task (at 4x; in shares of tokens where answers have several), with a 95 % interval by bootstrap over
encodings."""


def leaderboard_files(found: Sequence[Measured]) -> dict[str, bytes]:
    """The page of all encodings and its figures, by file name."""
    board = ranking(found)
    seeds = "; ".join(f"{one.study.name} {len(one.seeds)}" for one in found)
    links = [f"- [{one.study.name}]({one.study.name}.md): {'; '.join(one.report.verdict)}" for one in found]
    parts = [
        "# Leaderboard",
        "All encodings in one training setup. The models are small and trained for minutes: the table shows\n"
        "how encodings fail beyond the trained length, not which one a large model should use.",
        "![Each encoding at 4 times the trained length, coloured by rank](leaderboard.png)",
        "The figure has the columns that are ranked, yellow for the best. A dash: not learned, or not\n"
        "possible at this length. Empty: not measured.",
        board.table(),
        LEGEND,
        f"Seeds: {seeds}.",
        "The ten most used encodings, and tasks by whole answers:",
        board.short_table(SHOWN, SHORT),
    ]
    files = {"leaderboard.png": board.figure()}
    text, tasks = [one for one in found if one.study.name == "text"], [one for one in found if one.is_task]
    if text and tasks:
        figure = "![Loss on text and score of each task](text_and_tasks.png)"
        parts += ["## Does perplexity predict the tasks?", CORRELATION, figure, correlations(*text, tasks)]
        files["text_and_tasks.png"] = correlation_figure(*text, tasks)
    parts += ["## Studies", "\n".join(links)]
    return files | {"leaderboard.md": ("\n\n".join(parts) + "\n").encode()}


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
    files = leaderboard_files(found)
    for one in found:
        files |= study_files(one)
    for name in QUESTIONS:
        files |= question_files(name, studies, stored)
    for name, content in files.items():
        atomic_write(out / name, content)
    print(f"{len(found)} studies: {out / 'leaderboard.md'}")


if __name__ == "__main__":
    main()
