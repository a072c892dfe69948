"""Studies with the entries that `scripts/results.py` has stored."""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from results import Entry, Study, unpack
from zoo import registry
from zoo.figures.curves import pictures
from zoo.figures.style import FIRST, METADATA
from zoo.reports.report import Report, build
from zoo.runs.card import read_card

REFERENCE = "rope"
SHOWN = FIRST
"""The encodings in the figure of a study; its tables have all."""
LEFT_OUT = frozenset({"drope"})
"""Encodings without a row. DroPE begins with the checkpoint of another encoding; trained from the start it is
`none` with scaled logits beyond the trained length. `scripts/results/drope` has the comparison."""
LEARNED = 0.8
"""An encoding with a smaller score at the trained length has not learned the task."""
DASH = "–"


def compared(entries: Sequence[Entry]) -> list[Entry]:
    """The stored entries of the seeds of which all entries are stored; without such a seed, the stored
    entries of the first one."""
    seeds = {entry.seed for entry in entries}
    whole = seeds - {entry.seed for entry in entries if not entry.file.exists()} or {min(seeds)}
    return [entry for entry in entries if entry.seed in whole and entry.file.exists()]


@contextmanager
def run_folders(entries: Sequence[Entry], changed: bool) -> Iterator[dict[Path, str]]:
    """The run folders of entries with the names of their encodings; they are in the working directory, so
    that a report names them without a path.

    Args:
        changed: with the evaluations of a changed encoding.
    """
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        unpack(entries, Path(), changed, shown_alone=True)
        yield {Path(f"{entry.study.name}_{entry.name}"): entry.encoding for entry in entries}


@dataclass(frozen=True)
class Measured:
    """A study with its stored entries.

    Attributes:
        names: for each label of the report the encoding's name in the study, or the label itself where the
            encoding was changed after training.
        seeds: the compared ones.
        missing: encodings that are not stored with one of these seeds.
    """

    study: Study
    report: Report
    names: dict[str, str]
    seeds: list[int]
    missing: list[str]

    @cached_property
    def summary(self) -> pd.DataFrame:
        return self.report.summary.assign(name=self.report.summary["encoding"].map(self.names))

    @property
    def trained(self) -> int:
        return int(self.report.summary["train_length"].min())

    @cached_property
    def kind(self) -> str:
        """`decoder` or `encoder`."""
        return self.study.recipe("none", 0).model.kind

    @cached_property
    def parameters(self) -> dict[str, int]:
        """The number of parameters of each encoding's model."""
        first = self.report.results.rows.drop_duplicates("encoding")
        return {
            self.names[label]: self.report.results.runs[run].card["parameters"]["total"]
            for label, run in zip(first["encoding"], first["run"], strict=True)
        }

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

    def measured(self, name: str, protocol: str, measure: str) -> pd.DataFrame:
        """The measured rows of an encoding, one for each seed and length; their indices are those of the
        scores of documents."""
        rows = self.report.results.rows
        names = rows["encoding"].map(self.names)
        return rows[(names == name) & (rows["protocol"] == protocol) & (rows["measure"] == measure)]

    def at(self, name: str, factor: int, protocol: str | None = None) -> pd.Series | None:
        """The row at `factor` times the trained length; None if there is no value."""
        rows = self.rows(name, protocol)
        rows = rows[(rows["length"] == factor * self.trained) & rows["mean"].notna()]
        return rows.iloc[0] if len(rows) else None

    def why_not(self, name: str, factor: int) -> str:
        """The reason why there is no value."""
        if name not in self.names.values():
            able = getattr(registry.encodings.describe(name), self.kind)
            return "not measured yet" if able else f"not for {self.kind}s"
        rows = self.rows(name)
        notes = rows.loc[rows["length"] == factor * self.trained, "note"].dropna()
        return notes.iloc[0] if len(notes) else "not measured"


def read_measured(study: Study, stored: Path) -> Measured | None:
    """A study as far as it is stored; None while fewer than two encodings are."""
    every = [entry for entry in study.entries(stored) if entry.encoding not in LEFT_OUT]
    entries = compared(every)
    if len({entry.encoding for entry in entries}) < 2:
        return None
    with run_folders(entries, changed=False) as runs:
        named = (read_card(run)["encoding"] for run, name in runs.items() if name == REFERENCE)
        report = build([*runs], reference=next(named, None))
    first = report.results.rows.groupby("encoding", sort=False).first()
    names = {
        label: runs[Path(row["run"])] if row["changed"] == "{}" else label for label, row in first.iterrows()
    }
    seeds = sorted({entry.seed for entry in entries})
    missing = [one.encoding for one in every if one.seed in seeds and one not in entries]
    return Measured(study, report, names, seeds, missing)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=200, metadata=METADATA[".png"])
    return content.getvalue()


def curves(name: str, summary: pd.DataFrame, title: str = "") -> dict[str, bytes]:
    """The figure of values by length, by file name; none without values."""
    return {name + ending: content for ending, content in pictures(summary, title, [".png"]).items()}
