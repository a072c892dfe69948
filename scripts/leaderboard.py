"""Write the pages of docs/results from the measurements that `scripts/results.py` has stored.

    python scripts/leaderboard.py                  # all pages, and the numbers in the texts of docs/
    python scripts/leaderboard.py --out DIR        # write the pages to another folder
    python scripts/leaderboard.py --floors         # simulate the strategies that do not do a task

A page has the stored entries, and lists the missing ones. Nothing is computed again: run
`scripts/results.py` to measure more.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import results
from board.boards import BEST, BEST_HERE, FAR, NEAR, Boards, read_boards, seeds_text
from board.correlation import KEPT, correlation_figure, correlations
from board.figures import dots, lines
from board.floors import floors_file
from board.measured import LEARNED, REFERENCE, Measured, left_out
from board.pairs import RISING
from board.panels import study_panels
from board.questions import QUESTIONS, question_files
from board.scores import DRAWS, FEWEST, MOST, floors_by_length, seed_spread
from board.sentences import PAGES, filled, problems
from board.settings import settings_page
from board.text import DASH, and_list, table
from board.values import csv, means_table, of_study, wide_table
from zoo.comparison.formatting import display_name, number
from zoo.comparison.statistics import NATS_LOST
from zoo.evaluation.interval import interval_of_rate
from zoo.figures.style import HUES
from zoo.files import atomic_write
from zoo.reports.text import markdown

OUT = results.ROOT / "docs" / "results"
FURTHER = {
    "accuracy_beyond": ("Beyond the trained length", "Accuracy where the answer lies there."),
    "token_accuracy": ("Token accuracy", "The share of an answer's tokens that are right."),
}
"""Measures that have a table of their own in a study of a task."""
FORMER = """\
Masked text is still in a former setting: weights with a standard deviation of 0.02, and a learning rate that
was not searched."""
NOTES = {
    "max_index": """\
Point at the first of the largest of 19 values. The answer is equally likely at every position
(`data.order: uniform`); in the published form, the default of the dataset, 97 % of the answers are among the
first 64 positions at every length. A symmetric bias cannot tell the first from the last: `alibi`, `kerple`
and `sandwich` have their `one_sided` forms here. `deberta` has 82 % more parameters than `none`.""",
    "flip_flop": """\
At every length nine of ten answers lie within the trained length, 4 instructions back in the median: reading
that alone is the floor. So the leaderboard counts how the same checkpoints read the
[sparse](flip_flop_sparse.md) set. They also read the [dense](flip_flop_dense.md) one.""",
    "flip_flop_sparse": """\
98 % of the instructions are to be ignored, as in the sparse set of Liu et al. 2023 (arXiv:2306.00946). The
models were trained with 80 %. There are few writes, so the value that was written or read most often is right
in most cases: the floor is high.""",
    "flip_flop_dense": """\
10 % of the instructions are to be ignored. The models were trained with 80 %. Every answer lies within the
trained length, so reading that alone is enough: a score below 1 is attention that is diluted.""",
    "copy": """\
Whole answers: looking up the last three symbols has 0.94 of the tokens at 4 times the trained length, more
than any encoding, and 0.04 of the whole answers at twice that length.""",
    "reverse": "Whole answers, for the same reason as [copies](copy.md).",
    "associative_recall": """\
A model that knows both values and not their keys has both right in 0.56 of the cases, more than half
because the two values may be equal, and 0.78 of the tokens.""",
    "associative_recall_8": """\
The learning rate and the initialization are those that were chosen for two pairs. An encoding that does not
learn eight pairs may need others, more steps or another seed. The task counts on the leaderboard once half of
the encodings are measured.""",
    "masked_text": f"""\
`deberta` has 30 % more parameters than `none`, `transformer_xl` 5 %.

{FORMER}""",
    "text": """\
One seed: the intervals are over documents alone. [The leaderboard](leaderboard.md#decoders-on-text) has the
deviation over seeds of four encodings, and places that include it. Where the loss rises with the length
seeds differ more, so the order of two such encodings far beyond the trained length is not known.

Windows cross articles. Half of the targets have 2,048 earlier tokens of their own article, a quarter 4,096
and an eighth 8,192: at 16 and 32 times the trained length most context is of other articles. One of the 17
articles has a quarter of the targets.

`fixed_targets` has 200 tokens of one document, the only one of 8,192 tokens. Its values and the effective
lengths in its table say little; the leaderboard takes the effective length from `sliding`. The models differ
in size: `deberta` has 20 % more parameters than `none`, `transformer_xl` 5 %, `path` 3 %. [RoPE with as many
as DeBERTa](question_wider_rope.md) is measured too.

`cable` alone has a higher loss than in an earlier setting (1.661 in place of 1.632 at the trained length).
The initialization and the learning rate both changed since then; neither was tried alone. `dape` and `dpb`
had a lower loss than `path` there.

`rope, window 256` is the checkpoint of `rope`, read after training with the last 256 tokens in each layer.
An encoding whose loss is not lower extrapolates no better than a window.""",
    "text_novels": """\
The checkpoints of [text](text.md) read the last 256 tokens of the beginnings of 21 novels, after as much of
the novel as fits in the length. In a window of 256 tokens the first of them has one token before it: a change
from 256 to 1,024 tokens is mostly one of the early tokens. From 1,024 to 4,096 only distant context is added.
The novels are more than a hundred years old; the models were trained on Wikipedia.""",
}
"""Limits of a study, on its page."""


def study_files(one: Measured, boards: Boards) -> dict[str, bytes]:
    """The page of a study and its figure, by file name."""
    name = one.study.title
    stored = f"../../scripts/results/{one.study.name}.parquet"
    last = {change.partition("=")[0]: change for change in one.study.set}  # a reading may repeat a key
    settings = ", ".join(f"`{change}`" for change in last.values())
    panels = study_panels(one, boards)
    every = len(boards.shown(one)) == len(one.encodings)
    best = f"the best {BEST_HERE} on the tasks and here" if one.is_task else f"the best {BEST}"
    drawn = "All encodings" if every else f"The most used encodings and {best}"
    figures = {f"{name}.png": lines(panels)}
    if len(panels) > 1:  # the first alone, for the README; each curve has a hue of its own
        curves = {label: panels[0].curves[label] for label in boards.shown(one, len(HUES))}
        figures[f"{name}_lengths.png"] = lines([replace(panels[0], curves=curves)])
    parts = [
        f"# {name}",
        f"`{one.study.base}` with {settings}, {seeds_text(one)}, trained at {one.trained} tokens "
        f"([study](../../scripts/studies), [measurements]({stored})).",
        *([NOTES[name]] if name in NOTES else []),
        f"![{drawn}, by length in tokens]({name}.png)",
        "Bars are 95 % intervals: over seeds for a task, over documents and seeds for a change of the loss. "
        + (
            "The grey area ends at the floor, the score of a strategy that does not do the task."
            if one.is_task
            else "In brackets: the value at the trained length."
        ),
    ]
    if one.is_task:
        parts.append(floors_text(one, boards))
    if one.missing:
        parts.append(f"Not measured yet: {missing_text(one)}.")
    if one.is_task:
        several = [name for name in one.encodings if one.seeds[name] >= FEWEST]
        parts += ["## Success rate", success_table(one, several)] * bool(several)
        for measure, (head, note) in FURTHER.items():
            if one.summary[measure].notna().any():
                parts += [f"## {head}", note + " Means over seeds.", means_table(one.summary, measure)]
    if own := {*one.study.own} & {*one.encodings}:
        parts.append(left_out(own))
    parts.append(markdown(one.compared).partition("\n")[2].strip())
    page = "\n\n".join(parts) + "\n"
    return figures | {f"{name}.md": page.encode()}


def floors_text(one: Measured, boards: Boards) -> str:
    """The floor of each measure at each length, in one sentence."""
    name = one.study.title
    found = (
        f"{display_name(measure)} {floors_by_length(boards.floors, name, measure, one.study.lengths)}"
        for measure in boards.floors[name]
        if (one.rows["measure"] == measure).any()
    )
    return f"Floors by length in tokens: {'; '.join(found)}."


def missing_text(one: Measured) -> str:
    """The encodings that lack seeds; only the number of those with the usual lack, where they are many."""
    ((usual, times),) = Counter(one.missing.values()).most_common(1)
    named = one.missing
    if times > BEST:
        named = {name: counts for name, counts in named.items() if counts != usual}
        named[f"{times} encodings"] = usual
    return ", ".join(f"{name} ({stored} of {wanted} seeds)" for name, (stored, wanted) in named.items())


def success_table(one: Measured, names: Sequence[str]) -> str:
    """The share of seeds that succeed, with Wilson's interval, the median and each seed, by length."""
    lengths = sorted(one.summary["length"].unique())
    rows = []
    for name in names:
        own, cells = one.at_lengths(name).set_index("length")["values"], [name]
        for length in lengths:
            values = [*own.get(length, {}).values()]
            if not values:
                cells.append(DASH)
                continue
            won = np.array([float(value >= LEARNED) for value in values])
            low, high = interval_of_rate(won)
            each = ", ".join(f"{value:.2f}" for value in sorted(values, reverse=True))
            cells.append(
                f"{int(won.sum())} of {len(won)} ({low:.2f}–{high:.2f}), {np.median(values):.2f} ({each})"
            )
        rows.append(cells)
    note = (
        f"The share of seeds with an accuracy of at least {LEARNED:g}, with Wilson's 95 % interval; the "
        "median accuracy, and in brackets the accuracy of each seed."
    )
    return f"{note}\n\n{table(['encoding', *map(str, lengths)], rows)}"


INTRODUCTION = f"""\
The models are small and trained for minutes. The table shows how encodings fail beyond the trained length,
not which one a large model should use. Each task of decoders and text has [the learning rate and the
initialization](settings.md) that were chosen for it. {FORMER}"""
FIGURE = """\
After the name: the place. On text the intervals are those of the paired difference to the first encoding.
Below a line begins a group: its first encoding is worse than the leader of the group above."""
LEGEND = f"""\
Order: by the score in the tasks, then by text. A place is an interval: for the encoding at `2–9` one other
is better, and all but eight others are worse; the rest cannot be told apart from it ([the
rule](#the-rule)). 1x, {NEAR}x and {FAR}x are multiples of the trained length. Text: bits per byte, and its
paired change from the trained length with half of the 95 % interval over documents (one seed). Tasks: the
score above the floor with its 95 % interval. Seeds learned: of all seeds of all tasks, those with
{LEARNED:g} of the whole answers at the trained length. Parameters and time of a training step are relative
to `none`; parameters of the model of text, in brackets of the tasks. A dash: not measured or not possible.
[All values](values.md), as [CSV](values.csv).

Combinations: `heads` is NAPE (half of the heads ALiBi with slopes 1/h, half without positions),
`nape_entmax` the same with `entmax`, and `nape_adaptive` with `entmax` and adaptive logits, which change
the model (`model.logit_scale`); `alibi_entmax` and `rope_sink` are ALiBi with `entmax` and RoPE with
`sink`. `randomized` and `pose` are trained with positions up to the longest tested length of each task."""
RULE = f"""\
There are three boards and no single place. Nothing is imputed on the tasks: each seed counts as it was
measured, whether it learned the task or not.

- **Score** of a task, a seed and a length: max(0, (x − floor)/(1 − floor)). x is the share of right tokens
  of an answer. The floor is the score of the best strategy that does not do the task, such as saying the
  last symbol again or reading the trained length alone. The score of a seed is the mean over the lengths
  above the trained one. A length at which an encoding cannot be read scores 0.
- **Flip-flop** counts the sparse set, read by the same checkpoints: in the set of training nine of ten
  answers lie within the trained length. **Copy and reverse** count whole answers at 1.5 and 2 times the
  trained length: a look-up of the last three symbols has 0.9 of the tokens at every length and few whole
  answers, and beyond twice the length few encodings have a whole answer right.
- **Tasks** count once half of the encodings are measured in them. An encoding has a place once it is
  measured in all of these tasks.
- **Aggregate**: the interquartile mean over tasks and seeds (Agarwal et al. 2021, arXiv:2108.13264), in
  which each task has the same weight. Of six tasks it leaves out one and a half at each end, other ones for
  each encoding. Its interval is a bootstrap over the seeds of each task: all outcomes with their chances,
  each of one seed fewer than were measured (Rao and Wu 1988, doi:10.1080/01621459.1988.10478591). Of more
  than {MOST:,} outcomes {DRAWS:,} are drawn.
- **Place** on the tasks: 1 + the number of encodings that are better with a chance above 97.5 %. The last
  place of the interval counts those that are not worse with such a chance.
- **Place** on text: the same for the mean loss over the lengths above the trained one, by the paired 95 %
  interval of each difference, over documents and seeds. Values are of the seeds that all encodings have.
  With fewer than {FEWEST} of them the interval over seeds has a standard deviation that is pooled over the
  encodings with {FEWEST} seeds or more (the residual of seeds and encodings). An encoding whose loss rises
  with the length varies more over seeds. So its deviation is {RISING:g} of the rise of its mean beyond 1x,
  if that is more. This share was chosen on an earlier setting, in which 24 encodings had three seeds. In
  these same data the interval from one seed missed the difference in the other two seeds in 3 % of the
  pairs.
- **Baseline** on text: `rope, window 256` is the checkpoint of `rope`, read in a window of the trained
  length.
- **Few seeds**: with fewer than {FEWEST} seeds the scores of tasks have neither places nor intervals, and a
  text without such encodings has no places.
- **Limits**: [in a simulation](../coverage.md) with three seeds the intervals of places hold the true place
  in 97 % of the cases, those of scores the true score in 83 % in place of 95: these are too narrow.
  One of two equal encodings is called better in 7 % of the cases in place of 5. Places on text hang on
  one deviation of few encodings: if it is too small, all of them are too narrow. A place has no meaning
  apart from these tasks and lengths, and no interval is corrected for the number of pairs."""
OF_TASKS = f"""\
"Without a task": the range of places if one task is left out; with few seeds, of ranks. "Of those": the
score of the seeds that learned their task. Encodings learn different tasks, so this column does not compare
them. Each task: the mean score of its seeds, and in brackets the number of seeds that learned it
({LEARNED:g} of the whole answers at the trained length)."""
OF_TEXT = """\
Bits per byte with 95 % intervals over documents, {seeds}; changes are paired.
Effective length: the longest tested length up to which the loss under `sliding` rises by at most {nats:g}
nats per token, over {targets:,} targets in {documents} documents."""
OF_SPREAD = """\
All values are of one seed. Further seeds of {names} serve the places alone. Without what a seed does to all
of them, the loss has a standard deviation over seeds of {first.sd:.4f} at 1x and of {beyond.sd:.4f} as the
mean beyond it ({beyond.freedom} degrees of freedom). With these a difference lies outside the 95 % interval
over seeds from {margins[0]:.3f} and {margins[1]:.3f} on; where the loss rises with the length, from more on
([the rule](#the-rule)). The mean beyond 1x by seed: {values}."""
OF_VALUES = """\
Means over seeds at some multiples of the trained length. Tasks: the share of whole answers, in brackets that
of their tokens. Text: bits per byte, or nats per masked token. The pages of the studies have the intervals;
[values.csv](values.csv) has all lengths, intervals, floors and seeds."""
OF_REPEATS = """\
`repeats`: bits per byte of tokens that complete a rare bigram seen farther back than the trained length, less
those of a bigram seen nearer, both in one window of {window:,} tokens, with the 95 % interval over seeds
where there are several. {far:,} targets are beyond the trained length, {last} of them in the last octave,
{near:,} within. The targets of the two sides differ, so only differences between encodings have a meaning."""
DROPE = """\
`drope` has no row. DroPE begins with the checkpoint of another encoding; trained from the start it is `none`
with scaled logits. [One seed of DroPE](../../scripts/results/drope/compare.md) is compared with RoPE."""
CORRELATION = f"""\
Spearman's rank correlation over encodings between the change of the loss on text from the trained length to
{NEAR} times it (as a multiple, negated) and the score of a task. An encoding counts if most of its seeds
learned the task. In brackets the range if any one family of encodings is left out, a wrapper in the family of
the encoding it is built around. A dash: fewer than five encodings, or three quarters of them at the floor.
"Kept": without the encodings whose loss on text rises by more than {KEPT:.0%}."""


def leaderboard_files(boards: Boards) -> dict[str, bytes]:
    """The page of the boards and its figures, by file name."""
    first = {}
    if boards.text:
        first["Decoders on text"] = (
            boards.text[1],
            "bits per byte beyond 1x, less those of the first (less is better)",
        )
    if boards.tasks:
        first["Decoders on tasks"] = (boards.tasks, "score above the floor (more is better)")
    parts = [
        "# Leaderboard",
        boards.sentence(),
        INTRODUCTION,
        "![Value and 95 % interval of each encoding on text and on the tasks, in groups](leaderboard.png)",
        FIGURE,
        boards.summary(),
        LEGEND,
    ]
    files = {"leaderboard.png": dots(first)}
    if boards.text:
        one, board = boards.text
        sliding = one.measured(REFERENCE, "sliding", "bits_per_byte")
        about = OF_TEXT.format(
            seeds=seeds_text(one),
            nats=NATS_LOST,
            targets=int(sliding["tokens"].iloc[0]),
            documents=int(sliding["documents"].iloc[0]),
        )
        parts += ["## Decoders on text", about]
        if board.spread:
            both = {"first": seed_spread(one.further, [one.trained]), "beyond": board.spread}
            each = [*board.spread.losses.items()]
            parts.append(OF_SPREAD.format(
                names=and_list([f"`{name}`" for name, _ in each]),
                values="; ".join(f"{name} {', '.join(map(number, values))}" for name, values in each),
                margins=[spread.margin() for spread in both.values()],
                **both,
            ))  # fmt: skip
        if one.missing:
            parts.append(f"Not measured yet: {', '.join(one.missing)}.")
        parts.append(boards.text_table(one))
    if boards.tasks:
        parts += ["## Decoders on tasks", OF_TASKS, boards.task_table("decoder"), "Floors:"]
        parts.append(boards.floor_table("decoder"))
    encoders = {}
    if boards.encoder_tasks:
        encoders["Encoders on tasks"] = (boards.encoder_tasks, "score above the floor (more is better)")
    for one in boards.of("encoder", task=False):
        encoders[one.study.title] = (
            boards.losses[one.study.title],
            "nats beyond 1x, less those of the first (less is better)",
        )
    if encoders:
        files["leaderboard_encoders.png"] = dots(encoders)
        parts += ["## Encoders", "![The same for encoders](leaderboard_encoders.png)"]
        if boards.encoder_tasks:
            parts += [boards.task_table("encoder"), "Floor:", boards.floor_table("encoder")]
        for one in boards.of("encoder", task=False):
            parts += [
                f"`{one.study.title}`, nats per masked token, {seeds_text(one)}:",
                boards.text_table(one),
            ]
    parts += ["## The rule", RULE, DROPE]
    if boards.text and boards.tasks:
        figure = "![Change of the loss on text and score of each task](text_and_tasks.png)"
        text, tasks = boards.text[0], boards.tasks.seeds
        parts += ["## Does perplexity predict the tasks?", CORRELATION, figure, correlations(text, tasks)]
        files["text_and_tasks.png"] = correlation_figure(text, tasks)
    return files | {"leaderboard.md": ("\n\n".join(parts) + "\n").encode()}


def values_page(boards: Boards) -> bytes:
    """The page with the values of all studies at some lengths."""
    parts = [
        "# All values",
        OF_VALUES,
        wide_table(boards),
    ]
    if boards.text and "repeats" in boards.text[0].study.protocols:
        one = boards.text[0]
        rows = one.measured(REFERENCE, "repeats", "bits_per_byte")
        counts = rows[rows["seed"] == rows["seed"].iloc[0]].set_index("length")["tokens"].astype(int)
        beyond = counts[counts.index > one.trained]
        parts.append(OF_REPEATS.format(
            window=json.loads(rows.iloc[0]["parameters"])["window"], far=beyond.sum(), last=beyond.iloc[-1],
            near=counts.sum() - beyond.sum(),
        ))  # fmt: skip
    return ("\n\n".join(parts) + "\n").encode()


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
    boards = read_boards(studies, stored)
    found = boards.found
    files = leaderboard_files(boards)
    tables = []
    for one in [*found, *boards.readings.values()]:
        files |= study_files(one, boards)
        tables.append(of_study(one, boards.floors))
    for name in QUESTIONS:
        made, rows = question_files(name, studies, stored, boards)
        files |= made
        tables += rows
    files |= settings_page(studies, stored) | {"values.md": values_page(boards), "values.csv": csv(tables)}
    for name, content in files.items():
        atomic_write(out / name, content)
    if out == OUT:
        for page in PAGES:
            text = filled(page.read_text(), boards.summary(boards.matter()))
            atomic_write(page, text.encode())
            for problem in problems(text):
                print(f"{page.relative_to(results.ROOT)}:{problem}")
    print(f"{len(found)} studies: {out / 'leaderboard.md'}")


if __name__ == "__main__":
    main()
