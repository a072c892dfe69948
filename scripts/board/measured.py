"""Studies with their stored entries."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from results import Entry, Study
from zoo.comparison.comparable import on_common_targets
from zoo.comparison.frame import KIND, Results, series_of
from zoo.comparison.paired import FEWEST_SEEDS, Basis, Estimate
from zoo.comparison.ranking import Ranking, of_samples
from zoo.comparison.run_info import RunInfo
from zoo.comparison.statistics import beyond, estimate, samples, summary
from zoo.figures.style import family
from zoo.runs.folder import LAST

REFERENCE = "rope"
LEFT_OUT = frozenset({"drope"})
"""Encodings without a row. DroPE begins with the checkpoint of another encoding; trained from the start it is
`none` with scaled logits beyond the trained length. The study extend_novels has it."""
DISPLAYED = {
    "heads": "nape", "nape_entmax": "nape+entmax", "nape_adaptive": "asentmax",
    "alibi_entmax": "alibi+entmax", "rope_sink": "rope+sink",
}  # fmt: skip
"""Names of rows by the names in the files of the studies, where they differ."""
LEARNED = 0.9
"""A seed has learned a task with at least this share of whole answers at the trained length."""


def shown_runs(entries: Sequence[Entry], changed: bool | Mapping[str, Any] = False) -> list[RunInfo]:
    """The runs of stored entries with the measurements that their study, or its reading, shows.

    Args:
        changed: with the evaluations of a changed model, all or those with these changes.
    """
    return [
        replace(entry.run, measurements=tuple(
            one for one in entry.run.measurements
            if (changed is True or one.changed in ({}, changed))
            and one.parameters.get("data") == entry.study.data_shown
            and one.checkpoint == str(LAST)
        ))
        for entry in entries
    ]  # fmt: skip


def curve_name(encoding: str, changed: Mapping[str, Any]) -> str:
    """An encoding as trained, or as it was read after training: `rerope`, `rope, window 256`."""
    if "model.encoding.name" in changed:
        return changed["model.encoding.name"]
    changes = (
        f"{key.rpartition('.')[2]} {value if isinstance(value, str) else f'{value:g}'}"
        for key, value in changed.items()
    )
    return ", ".join([DISPLAYED.get(encoding, encoding), *changes])


def stored_name(name: str) -> str:
    """The encoding of a curve as the study's file names it."""
    first = name.partition(",")[0]
    return next((stored for stored, shown in DISPLAYED.items() if shown == first), first)


def shown_protocol(study: Study) -> str:
    """`sliding` for a text that has it: with `nonoverlapping` a loss falls with the length, because longer
    windows have fewer tokens with little context. Else the first protocol."""
    return "sliding" if "sliding" in study.protocols else study.protocols[0]


@dataclass(frozen=True)
class Measured:
    """A study with its stored entries.

    Attributes:
        results: of all entries, with the displayed names of encodings.
        title: the name of its page.
    """

    study: Study
    results: Results
    title: str

    @cached_property
    def summary(self) -> pd.DataFrame:
        return summary(self.results)

    @property
    def rows(self) -> pd.DataFrame:
        return self.results.rows

    @property
    def encodings(self) -> list[str]:
        return [*self.rows["encoding"].unique()]

    @cached_property
    def seeds(self) -> dict[str, int]:
        """The number of stored seeds of each encoding."""
        return self.rows.groupby("encoding")["seed"].nunique().to_dict()

    @property
    def trained(self) -> int:
        return int(self.rows["train_length"].min())

    @cached_property
    def kind(self) -> str:
        """`decoder` or `encoder`."""
        return self.study.recipe("none", 0).model.kind

    @cached_property
    def runs(self) -> dict[str, RunInfo]:
        """The first run of each encoding."""
        first = self.rows.drop_duplicates("encoding").set_index("encoding")["run"]
        return {name: self.results.runs[path] for name, path in first.items()}

    @property
    def families(self) -> dict[str, str]:
        return {name: family(run.recipe["model"]["encoding"]) for name, run in self.runs.items()}

    @property
    def parameters(self) -> dict[str, int]:
        return {name: run.card["parameters"]["total"] for name, run in self.runs.items()}

    @property
    def is_task(self) -> bool:
        return self.study.is_task

    @property
    def protocol(self) -> str:
        return shown_protocol(self.study)

    @cached_property
    def measure(self) -> str:
        """The measure by which a task is scored: the one that its study names, or the share of right tokens
        where that is stored."""
        known = (self.study.scored.measure, "token_accuracy", "accuracy", "bits_per_byte", "loss_nats")
        return next(one for one in known if (self.rows["measure"] == one).any())

    def panel(self, protocol: str | None = None) -> pd.DataFrame:
        """The rows of the summary by one protocol, by default the shown one."""
        return self.summary[self.summary["protocol"] == (protocol or self.protocol)]

    def means(self, protocol: str | None = None) -> pd.DataFrame:
        """The means by encoding and length."""
        table = self.panel(protocol).pivot_table("mean", "encoding", "length", "first", sort=False)
        return table.reindex(self.encodings)

    def at(self, name: str, factor: int, protocol: str | None = None) -> pd.Series | None:
        """The row at `factor` times the trained length; None if there is no value."""
        rows = self.panel(protocol)
        rows = rows[
            (rows["encoding"] == name) & (rows["length"] == factor * self.trained) & rows["mean"].notna()
        ]
        return rows.iloc[0] if len(rows) else None

    def change(self, name: str, factor: int) -> Estimate:
        """The paired change of the loss from the trained length."""
        row = self.at(name, factor)
        return Estimate() if row is None else estimate(row, "change")

    @cached_property
    def ranking(self) -> Ranking:
        """The ranking of a text by the mean loss beyond the trained length. Encodings with fewer than
        `FEWEST_SEEDS` have a value alone."""
        means = beyond(samples(self.results, self.protocol), self.trained)
        several = {name: one for name, one in means.items() if self.seeds[name] >= FEWEST_SEEDS}
        found = of_samples(several, Basis(seeds=True, units=True))
        values, behind = dict(found.values), dict(found.behind)
        for name in means.keys() - several.keys():
            one = means[name]
            values[name] = Estimate(one.mean) if one else Estimate()
            if one and behind:
                behind[name] = Estimate(one.mean - next(iter(found.values.values())).value)
        order = sorted(values, key=lambda name: (math.isnan(values[name].value), values[name].value, name))
        return replace(found, values={name: values[name] for name in order}, behind=behind)


def read_measured(
    study: Study, stored: Path, title: str = "", changed: bool = False, fewest: int = 2
) -> Measured | None:
    """A study as far as it is stored; None while fewer than `fewest` encodings are.

    Args:
        changed: with all evaluations of a checkpoint after a change of its encoding.
    """
    every = [entry for entry in study.entries(stored) if entry.encoding not in LEFT_OUT]
    entries = [entry for entry in every if entry.run and shown_runs([entry])[0].measurements]
    if len({entry.encoding for entry in entries}) < fewest:
        return None
    return Measured(study, _results(study, entries, changed), title or study.title)


def _results(study: Study, entries: Sequence[Entry], changed: bool) -> Results:
    # A checkpoint in a window of its trained length is a baseline of text.
    window = {} if study.is_task else {"model.window": study.recipe("none", 0).data.sequence_length}
    runs = on_common_targets(shown_runs(entries, changed or window))[0]
    results = Results.of(series_of(runs))
    # Only measurements of one kind compare: of each protocol the kind that most encodings have.
    counts = results.rows.groupby(KIND)["encoding"].transform("nunique")
    most = counts.groupby(results.rows["protocol"]).transform("max")
    results = replace(results, rows=results.rows[counts == most])
    first = results.rows.groupby("encoding", sort=False)[["run", "changed"]].first()
    names = {
        label: curve_name(results.runs[run].origin["encoding"], json.loads(changed))
        for label, run, changed in first.itertuples(name=None)
    }
    return replace(results, rows=results.rows.assign(encoding=results.rows["encoding"].map(names)))
