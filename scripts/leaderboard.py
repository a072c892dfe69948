"""Write the pages of docs/results from the measurements that `scripts/results.py` has stored.

    python scripts/leaderboard.py                  # a page for each study, and the leaderboard
    python scripts/leaderboard.py --out DIR        # write the pages to another folder

A study compares the seeds of which all encodings are stored; without such a seed, the encodings of which
all seeds are stored. A page lists what is missing.
Nothing is computed again: run `scripts/results.py` to measure more.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from zoo import registry
from zoo.comparison.effective_length import NATS_LOST, SHARE_KEPT
from zoo.comparison.formatting import number, signed
from zoo.evaluation.interval import interval_of_rate
from zoo.figures.curves import pictures
from zoo.figures.style import METADATA, RC, styles
from zoo.files import atomic_write
from zoo.reports.report import Report, build
from zoo.reports.text import markdown
from zoo.runs.card import read_card

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "results"
COSTS = ROOT / "scripts" / "results" / "costs.json"
REFERENCE = "rope"
SHOWN = ("none", "sinusoidal", "learned", "t5", "alibi", "rope", "kerple", "fire", "fox", "cope")
"""The encodings in the figure of a study; its tables have all."""
SUCCESS = 0.95
"""A seed with at least this accuracy counts as a success."""
LEARNED = 0.8
"""An encoding with a smaller score at the trained length has not learned the task."""
BOOTSTRAP = 2000
FURTHER = {
    "accuracy_beyond": ("Beyond the trained length", "Accuracy where the answer lies there."),
    "token_accuracy": ("Token accuracy", "The share of an answer's tokens that are right."),
}
"""Measures that have a table of their own in a study of a task."""
DASH = "–"


@dataclass(frozen=True)
class Question:
    """A question that papers answer differently, with the stored entries that answer it.

    Attributes:
        studies: their names.
        protocols: of those of the studies; none: all.
        changed: whether the evaluations of a checkpoint with a changed encoding are shown too.
    """

    text: str
    studies: Sequence[str]
    encodings: Sequence[str]
    protocols: Sequence[str] = ()
    changed: bool = False


ROPES = ("rope", "rope_clipped", "p_rope", "none")
QUESTIONS = {
    "t5_and_fire": Question(
        "Do T5 and FIRE extrapolate beyond twice the trained length?",
        ["text"], ("rope", "t5", "fire", "alibi", "kerple"), ["nonoverlapping"],
    ),
    "no_encoding": Question(
        "Is no encoding the best or the worst?",
        ["text"], ("rope", "none", "sinusoidal", "alibi", "fox"), ["nonoverlapping"],
    ),
    "far_context": Question(
        "Does ALiBi use far context?",
        ["text"], ("rope", "none", "alibi", "t5", "fox"), ["fixed_targets", "repeats"],
    ),
    "far_recall": Question(
        "Does ALiBi use far context? Associative recall",
        ["associative_recall"], ("rope", "none", "alibi", "t5", "fox"),
    ),
    "rope": Question("Why does RoPE fail?", ["text", "text_rope"], ROPES, ["nonoverlapping"], changed=True),
    "rope_log_n": Question(
        "Why does RoPE fail? Logits times log n", ["text_log_n"], ROPES, ["nonoverlapping"], changed=True
    ),
    "rope_flip_flop": Question("Why does RoPE fail? Flip-flop", ["flip_flop", "flip_flop_rope"], ROPES),
    "rope_flip_flop_log_n": Question(
        "Why does RoPE fail? Flip-flop, logits times log n", ["flip_flop_log_n"], ROPES
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """A study with its stored entries.

    Attributes:
        names: for each label of the report the encoding's name in the study, or the label itself where the
            encoding was changed after training.
        seeds: those that are compared.
        missing: seeds that are not stored, by encoding.
    """

    study: Any
    report: Report
    names: dict[str, str]
    seeds: list[int]
    missing: dict[str, list[int]]

    @cached_property
    def summary(self) -> pd.DataFrame:
        return self.report.summary.assign(name=self.report.summary["encoding"].map(self.names))

    @property
    def trained(self) -> int:
        return int(self.report.summary["train_length"].min())

    @property
    def is_task(self) -> bool:
        return self.report.summary.iloc[0]["measure"] == "accuracy"

    @cached_property
    def measure(self) -> str:
        """The column of the summary by which encodings are ranked. Long answers are seldom right as a whole
        beyond the trained length, so a task whose answers have several tokens is ranked by those."""
        table = self.summary
        several = (table["token_accuracy"] - table["mean"]).abs().max() > 1e-6
        return "token_accuracy" if several else "mean"

    @property
    def drawn(self) -> pd.DataFrame:
        """The rows of the summary for the figure, with `measure` in place of the accuracy."""
        table = self.summary[lambda one: one["name"].isin(SHOWN) | (one["encoding"] == one["reference"])]
        if self.measure == "mean":
            return table
        rows = self.report.results.rows[lambda one: one["measure"] == self.measure]
        seeds = {key: dict(zip(own["run"], own["value"], strict=True)) for key, own in
                 rows.dropna(subset="value").groupby(["encoding", "length"])}  # fmt: skip
        values = [seeds.get(key, {}) for key in zip(table["encoding"], table["length"], strict=True)]
        table = table.assign(mean=table[self.measure], measure=self.measure, values=values)
        return table.assign(low=math.nan, high=math.nan, interval=None, reference=None)

    def rows(self, name: str, protocol: str | None = None) -> pd.DataFrame:
        """The rows of an encoding by one protocol, by default the first."""
        table = self.summary
        wanted = protocol or table.iloc[0]["protocol"]
        return table[(table["name"] == name) & (table["protocol"] == wanted)]

    def at(self, name: str, factor: int, protocol: str | None = None) -> pd.Series | None:
        """The row at `factor` times the trained length; None if there is no value."""
        rows = self.rows(name, protocol)
        rows = rows[(rows["length"] == factor * self.trained) & rows["mean"].notna()]
        return rows.iloc[0] if len(rows) else None

    def why_not(self, name: str, factor: int) -> str:
        """The reason why there is no value."""
        if name not in self.names.values():
            kind = self.study.recipe("none", 0).model.kind
            able = getattr(registry.encodings.describe(name), kind)
            return "not measured yet" if able else f"not for {kind}s"
        rows = self.rows(name)
        notes = rows.loc[rows["length"] == factor * self.trained, "note"].dropna()
        return notes.iloc[0] if len(notes) else "not measured"


def load_results_script() -> Any:
    """The module `scripts/results.py`: it has the studies, and reads the stored entries."""
    spec = importlib.util.spec_from_file_location("results", Path(__file__).with_name("results.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["results"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def read_measured(results: Any, stored: Path, folder: Path) -> list[Measured]:
    """The studies in which at least two encodings are complete. Entries are unpacked into `folder`."""
    found = []
    for study in results.read_studies(results.STUDIES):
        if not study.leaderboard:
            continue
        entries, missing = study.entries(stored), {}
        whole = {entry.seed for entry in entries} - {e.seed for e in entries if not e.file.exists()}
        if whole:
            entries = [entry for entry in entries if entry.seed in whole]
        for entry in entries:
            if not entry.file.exists():
                missing.setdefault(entry.encoding, []).append(entry.seed)
        complete = [entry for entry in entries if entry.encoding not in missing]
        if len({entry.encoding for entry in complete}) < 2:
            continue
        results.unpack(complete, folder)
        runs = {folder / f"{study.name}_{entry.name}": entry.encoding for entry in complete}
        reference = next(
            (read_card(run)["encoding"] for run, name in runs.items() if name == REFERENCE), None
        )
        report = build([*runs], reference=reference)
        first = report.results.rows.groupby("encoding", sort=False).first()
        names = {
            label: runs[Path(row["run"])] if row["changed"] == "{}" else label
            for label, row in first.iterrows()
        }
        found.append(Measured(study, report, names, sorted({entry.seed for entry in complete}), missing))
    return found


def study_page(one: Measured) -> tuple[str, dict[str, bytes]]:
    """The Markdown of a study, and its figure by file ending."""
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
        parts.append(
            "Not measured yet: "
            + ", ".join(f"{key} (seeds {_listed(value)})" for key, value in one.missing.items())
            + "."
        )
    if one.is_task:
        parts += ["## Success rate", success_table(one)]
        for measure, (head, note) in FURTHER.items():
            if one.summary[measure].notna().any() and measure in ("accuracy_beyond", one.measure):
                parts += [f"## {head}", note + " Means over seeds.", means_table(one, measure)]
    parts.append(markdown(one.report).partition("\n")[2].strip())
    return "\n\n".join(parts) + "\n", figure


def question_page(name: str, results: Any, stored: Path, folder: Path) -> dict[str, bytes]:
    """The files of a question, by name: figure and tables of its entries; none while fewer than two
    encodings are stored."""
    question = QUESTIONS[name]
    entries = [
        entry
        for study in results.read_studies(results.STUDIES)
        if study.name in question.studies
        for entry in study.entries(stored)
        if entry.encoding in question.encodings and entry.file.exists()
    ]
    if len({entry.encoding for entry in entries}) < 2:
        return {}
    results.unpack(entries, folder, question.changed)
    report = build(
        [folder / f"{entry.study.name}_{entry.name}" for entry in entries],
        protocols=question.protocols or None,
    )
    files = {f"question_{name}{key}": value for key, value in pictures(report.summary, "", [".png"]).items()}
    tables = markdown(report).partition("\n")[2].strip().replace(f"{folder}/", "")
    page = f"# {question.text}\n\n![Values by length in tokens](question_{name}.png)\n\n{tables}\n"
    return files | {f"question_{name}.md": page.encode()}


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


def text_and_tasks(found: Sequence[Measured]) -> tuple[Measured | None, list[Measured]]:
    """The study of text, if it is measured, and those of tasks."""
    text = next((one for one in found if one.study.name == "text"), None)
    return text, [one for one in found if one.is_task]


def pairs_of(text: Measured, task: Measured, protocol: str | None = None) -> dict[str, tuple[float, float]]:
    """The loss on text and the score in a task, both at 4 times the trained length, of each encoding that
    has both."""
    both = {
        name: (text.at(name, 4, protocol), task.at(name, 4)) for name in dict.fromkeys(text.names.values())
    }
    return {
        name: (a["mean"], b[task.measure]) for name, (a, b) in both.items() if a is not None and b is not None
    }


def correlations(found: Sequence[Measured]) -> str:
    """Spearman's rank correlation over encodings between each text protocol and each task, with a 95 %
    interval by bootstrap over encodings. Empty without the text study."""
    text, tasks = text_and_tasks(found)
    if text is None or not tasks:
        return ""
    protocols = [name for name in text.study.protocols if name != "repeats"]
    rows = [
        [protocol, *(_correlation(np.array([*pairs_of(text, task, protocol).values()])) for task in tasks)]
        for protocol in protocols
    ]
    return table(["protocol", *(one.study.name for one in tasks)], rows)


def correlation_figure(found: Sequence[Measured]) -> bytes | None:
    """Loss on text and score of each task, a point for each encoding; None without the text study."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    text, tasks = text_and_tasks(found)
    if text is None or not tasks:
        return None
    columns = min(4, len(tasks))
    with rc_context(RC):
        figure = Figure(figsize=(2.4 * columns, 2.3 * math.ceil(len(tasks) / columns)), layout="constrained")
        grid = figure.subplots(
            math.ceil(len(tasks) / columns), columns, sharex=True, sharey=True, squeeze=False
        )
        for axes in grid.flat[len(tasks) :]:
            axes.set_axis_off()
        for axes, task in zip(grid.flat, tasks, strict=False):
            pairs = pairs_of(text, task)
            looks = styles(pairs)
            for name, point in pairs.items():
                axes.plot(*point, looks[name].marker, color=looks[name].color, markersize=3.5)
                if name in SHOWN:
                    axes.annotate(name, point, (2, 2), textcoords="offset points", fontsize=6)
            axes.set_title(task.study.name)
            axes.set_ylim(-0.03, 1.03)
        figure.supxlabel("text at 4x: bits per byte", fontsize=8)
        figure.supylabel("task at 4x", fontsize=8)
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=200, metadata=METADATA[".png"])
    return content.getvalue()


def _correlation(pairs: np.ndarray) -> str:
    if len(pairs) < 5:
        return DASH
    pairs = pairs * (-1, 1)  # a smaller loss is better
    rng = np.random.default_rng(0)
    drawn = [spearman(pairs[rng.integers(0, len(pairs), len(pairs))]) for _ in range(BOOTSTRAP)]
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return f"{spearman(pairs):.2f} ({low:.2f} to {high:.2f}), {len(pairs)} encodings"


def spearman(pairs: np.ndarray) -> float:
    """The correlation of the ranks, ties with their mean rank; NaN where all values are equal."""
    ranks = pd.DataFrame(pairs).rank().to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(ranks.T)[0, 1]) if len(np.unique(ranks[:, 0])) > 1 else math.nan


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


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, metavar="DIR", default=OUT, help="the folder of the pages")
    parser.add_argument("--stored", type=Path, metavar="DIR", help="the stored results")
    options = parser.parse_args(argv)
    results = load_results_script()
    with tempfile.TemporaryDirectory() as folder:
        found = read_measured(results, options.stored or results.OUT, Path(folder))
        for one in found:
            text, figure = study_page(one)
            text = text.replace(f"{folder}/", "")
            atomic_write(options.out / f"{one.study.name}.md", text)
            for ending, content in figure.items():
                atomic_write(options.out / f"{one.study.name}{ending}", content)
        if figure := correlation_figure(found):
            atomic_write(options.out / "text_and_tasks.png", figure)
        for name in QUESTIONS:
            files = question_page(name, results, options.stored or results.OUT, Path(folder) / name)
            for file, content in files.items():
                atomic_write(options.out / file, content)
        atomic_write(options.out / "leaderboard.md", leaderboard_page(found))
    print(f"{len(found)} studies: {options.out / 'leaderboard.md'}")


if __name__ == "__main__":
    main()
