"""Write the pages of docs/results from the measurements that `scripts/results.py` has stored.

    python scripts/leaderboard.py                  # a page for each study, and the leaderboard
    python scripts/leaderboard.py --out DIR        # write the pages to another folder
    python scripts/leaderboard.py --floors         # simulate the strategies that do not do a task

A study compares the seeds of which all encodings are stored; without such a seed, the stored entries of the
first one. A page lists the missing encodings.
Nothing is computed again: run `scripts/results.py` to measure more.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import results
from board.correlation import correlation_figure, correlations
from board.floors import floors_file
from board.measured import DASH, LEARNED, REFERENCE, SHOWN, Measured, curves, read_measured, table
from board.pairs import starts_table
from board.questions import QUESTIONS, question_files
from board.ranking import ranking
from board.settings import settings_page
from results import Study
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
SHORT = ("text 1x", "text 4x", "text 32x", "flip_flop 4x", "selective_copy 4x", "associative_recall 4x",
         "parameters", "step time")  # fmt: skip
"""The columns of the table in the README."""
NOTES = {
    "max_index": """\
The answer is the first of the largest of 19 values: at every length 97 % of the answers are among the first
64 positions, and the median is index 12. The task tests attention to one of many equal maxima, not reach.
A symmetric bias cannot tell the first from the last. `alibi` therefore has its `one_sided` form here.
`kerple` and `sandwich` had their symmetric form and could not learn the task; they are to be measured again
in a one-sided one. `deberta` has 82 % more parameters than `none`.""",
    "flip_flop": """\
The answer was last written or read 4 instructions back in the median, and more than 11 back in 8.5 % of the
cases: the task tests recall of a recent value, not reach.""",
    "associative_recall": """\
A model that knows both values and not their keys has both right in half of the cases, and 0.78 of the
tokens.""",
    "masked_text": "`deberta` has 30 % more parameters than `none`, `transformer_xl` 5 %.",
    "text": """\
Three seeds leave two degrees of freedom: an interval over seeds is 4.3 standard errors wide on each side.
`fixed_targets` has 200 tokens of one document, the only one of 8,192 tokens. Its values and the effective
lengths in its table say little; the leaderboard takes the effective length from `sliding`. The models differ
in size: `deberta` has 20 % more parameters than `none`, `transformer_xl` 5 % and `path` 3 %.""",
}
"""Limits of a study, on its page."""
START = """\
"Did not learn" holds for one start: `model.init_std: 0.02`, at width 64. From a start scaled to the width
(1/√64) other encodings learn: [examples](leaderboard.md#the-start). The tasks are being measured again."""


def study_files(one: Measured) -> dict[str, bytes]:
    """The page of a study and its figure, by file name."""
    name, seeds = one.study.title, len(one.seeds)
    folder = f"../../scripts/results/{one.study.name}/measurements"
    drawn = one.drawn
    figures = curves(name, drawn, one.report.title)
    if drawn["protocol"].nunique() > 1:  # the first alone, for the README
        figures |= curves(f"{name}_lengths", drawn[drawn["protocol"] == drawn.iloc[0]["protocol"]])
    parts = [
        f"# {name}",
        f"`{one.study.base}`, {seeds} seed{'s' * (seeds > 1)}, trained at {one.trained} tokens "
        f"([study](../../scripts/studies), [measurements]({folder})).",
    ]
    parts += [note for note in (NOTES.get(name), START * one.is_task) if note]
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
1x, 4x and 32x are multiples of the trained length. Parameters, step time and memory are relative to `none`:
parameters of the model of text, in brackets of the tasks'; time and memory of a training step. `deberta` has
20 % more parameters on text and 49 % more on the tasks, `path` 3 and 9 %, `transformer_xl` 5 and 8 %. No
control has as many, so a small lead of theirs may come from the size.

`max_index` is a task for encoders, and does not count for the order. It tests attention to one of many equal
maxima, not reach, and `alibi` has a one-sided form there that `kerple` and `sandwich` did not have
([limits](max_index.md)).

`drope` has no row. DroPE begins with the checkpoint of another encoding; trained from the start it is `none`
with scaled logits. [One seed of DroPE](../../scripts/results/drope/compare.md) is compared with RoPE.

Order: the mean of the relative ranks in those columns of decoders at 4x in which at least half of the
encodings have a value. A column with shares of tokens is ranked by them. Last in a column, and equal, are the
encodings that cannot be used at that length, and the ones that did not learn the task (less than {LEARNED:g}
at 1x). Equal places have a `=`. Differences in a column that are smaller than the intervals on the pages of
the studies do not decide an order.

Limits of the order: the threshold of {LEARNED:g} means little. In `associative_recall` a model that knows the
values without their keys has 0.78 of the tokens, in `flip_flop` a guess has 0.5. At 4x most values in `copy`,
`reverse`, `sort` and `associative_recall` are below those of a strategy that does not do the task, such as
saying the last symbol again: there the order is one of noise."""
OF_TEXT = """\
Effective length: the longest tested length up to which the loss under `sliding` rises by at most {nats:g}
nats per token, over {targets:,} targets in {documents} documents; where seeds differ, each of them in
brackets. `repeats`: bits per byte of tokens that complete a rare bigram seen farther back than the trained
length, less those of a bigram seen nearer, both in one window of {window:,} tokens, with the 95 % interval
over seeds. {far:,} targets are beyond the trained length, {last} of them in the last octave, {near:,}
within. The targets of the two sides differ, so only differences between encodings have a meaning, and most
intervals overlap. Neither column counts for the order."""
STARTS = """\
The tables show models whose weights start with a standard deviation of 0.02 (`model.init_std`), at any width.
At width 64, that of the tasks, this start decides what is learned in the given steps. These encodings start
from 1/√64 = 0.125 instead, with nothing else changed. Accuracy at 1, 2, 4 and 8 times the trained length, one
seed each:"""
AGAIN = """\
Every statement that an encoding did not learn a task, and every place, is one about the start of 0.02. The
tasks are being measured again. On text another start changed little for `none` in 175 steps; the others were
not tried."""
CORRELATION = f"""\
Spearman's rank correlation over encodings between two changes from the trained length to 4 times it: of the
loss on text (as a multiple, negated), and of the score in a task (as a share; in shares of tokens where
answers have several). Changes are correlated, because a model that did not learn a task has a score at 4x
all the same. "Learned": only encodings with at least {LEARNED:g} at 1x. The 95 % interval is by bootstrap
over families, a wrapper in the family of the encoding it is built around. There are five families, so it is
rough; it is not corrected for the number of correlations."""


def legend(text: Measured | None) -> str:
    """What the columns and the order mean."""
    if text is None:
        return LEGEND
    sliding, repeats = (
        text.measured(REFERENCE, name, "bits_per_byte").query(f"seed == {text.seeds[0]}")
        for name in ("sliding", "repeats")
    )
    counts = repeats.set_index("length")["tokens"].astype(int)
    beyond = counts[counts.index > text.trained]
    return LEGEND + "\n\n" + OF_TEXT.format(
        nats=NATS_LOST, targets=int(sliding["tokens"].iloc[0]), documents=int(sliding["documents"].iloc[0]),
        window=json.loads(repeats.iloc[0]["parameters"])["window"],
        far=beyond.sum(), last=beyond.iloc[-1], near=counts.sum() - beyond.sum(),
    )  # fmt: skip


def leaderboard_files(found: Sequence[Measured], studies: Sequence[Study], stored: Path) -> dict[str, bytes]:
    """The page of all encodings and its figures, by file name."""
    board = ranking(found)
    seeds = "; ".join(f"{one.study.name} {len(one.seeds)}" for one in found)
    text = [one for one in found if one.study.name == "text"]
    tasks = [one for one in found if one.is_task and one.kind == "decoder"]
    links = [
        f"- [{one.study.name}]({one.study.name}.md): {'; '.join(one.report.verdict[:2])}" for one in found
    ]
    parts = [
        "# Leaderboard",
        "All encodings in one training setup. The models are small and trained for minutes: the table shows\n"
        "how encodings fail beyond the trained length, not which one a large model should use. The places\n"
        "are provisional: which tasks a model learns depends on [the start of its weights](#the-start), and\n"
        "the seeds do not separate most neighbouring places. On text the failures beyond the trained length\n"
        "are several times smaller than published ones, probably because such small models use few distant\n"
        "tokens.",
        "![Each encoding at 4 times the trained length, coloured by rank](leaderboard.png)",
        "The figure has the columns that are ranked, yellow for the best. A dash: not learned, or not\n"
        "possible at this length. Empty: not measured.",
        board.table(),
        legend(text[0] if text else None),
        f"Seeds: {seeds}.",
        "The ten most used encodings, and tasks by whole answers:",
        board.short_table(SHOWN, SHORT),
    ]
    named = {study.name: study for study in studies}
    starts = [
        f"{one.study.name}:\n\n{made}"
        for one in tasks
        if (other := named.get(f"{one.study.name}_start"))
        and (made := starts_table(other, one.study, stored))
    ]
    if starts:
        parts += ["## The start", STARTS, *starts, AGAIN]
    files = {"leaderboard.png": board.figure()}
    if text and tasks:
        figure = "![Change of the loss on text and of the score of each task](text_and_tasks.png)"
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
    parser.add_argument("--floors", action="store_true", help="write STORED/floors.json alone (minutes)")
    options = parser.parse_args(argv)
    out, stored = options.out.resolve(), options.stored.resolve()
    studies = results.read_studies(results.STUDIES)
    if options.floors:
        atomic_write(stored / "floors.json", floors_file(studies))
        return
    found = [one for study in studies if study.leaderboard and (one := read_measured(study, stored))]
    files = leaderboard_files(found, studies, stored)
    for one in found:
        files |= study_files(one)
        for page in one.study.pages[1:]:
            files |= study_files(read) if (read := read_measured(page, stored)) else {}
    for name in QUESTIONS:
        files |= question_files(name, studies, stored)
    files |= settings_page(studies, stored)
    for name, content in files.items():
        atomic_write(out / name, content)
    print(f"{len(found)} studies: {out / 'leaderboard.md'}")


if __name__ == "__main__":
    main()
