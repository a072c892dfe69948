"""Studies with their stored entries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from board.pairs import Estimate, UnitLosses, losses
from results import Entry, Study
from zoo import registry
from zoo.comparison.run_info import RunInfo
from zoo.figures.style import FIRST
from zoo.reports.report import Report, report_on
from zoo.runs.folder import LAST

REFERENCE = "rope"
SHOWN = FIRST
"""The encodings in the figure of a study; its tables have all."""
LEFT_OUT = frozenset({"drope"})
"""Encodings without a row. DroPE begins with the checkpoint of another encoding; trained from the start it is
`none` with scaled logits beyond the trained length. `scripts/results/drope` has the comparison."""
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


def encoding_of(run: RunInfo) -> str:
    """The name in its study."""
    return run.origin["encoding"]


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


@dataclass(frozen=True)
class Measured:
    """A study with its stored entries.

    Attributes:
        report: of all entries.
        names: for each label of the report the displayed name of its encoding.
        title: the name of its page.
        further: with the seeds that only some encodings have (see `of_common_seeds`).
    """

    study: Study
    report: Report
    names: dict[str, str]
    title: str
    further: Measured | None = None

    @cached_property
    def summary(self) -> pd.DataFrame:
        found = self.report.summary.assign(name=self.report.summary["encoding"].map(self.names))
        return found.assign(accuracy=found["mean"]) if self.is_task else found

    @cached_property
    def rows(self) -> pd.DataFrame:
        """A row for each seed, protocol, length and measure, with the encoding's name as `name`; the indices
        of the rows are those of the scores of documents."""
        rows = self.report.results.rows
        return rows.assign(name=rows["encoding"].map(self.names))

    @property
    def encodings(self) -> list[str]:
        return [*dict.fromkeys(self.names.values())]

    @cached_property
    def seeds(self) -> dict[str, int]:
        """The number of stored seeds of each encoding."""
        return self.rows.groupby("name")["seed"].nunique().to_dict()

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
        return self.study.is_task

    @cached_property
    def measure(self) -> str:
        """The measure by which a task is scored: the one that its study names, or the share of right tokens
        where that is stored."""
        if self.study.scored.measure:
            return self.study.scored.measure
        every = {*self.rows["measure"]}
        return next(
            one for one in ("token_accuracy", "accuracy", "bits_per_byte", "loss_nats") if one in every
        )

    def at_lengths(self, name: str, protocol: str | None = None) -> pd.DataFrame:
        """The rows of the summary for an encoding by one protocol, by default the first."""
        table = self.summary
        wanted = protocol or table.iloc[0]["protocol"]
        return table[(table["name"] == name) & (table["protocol"] == wanted)]

    def measured(self, name: str, protocol: str, measure: str) -> pd.DataFrame:
        """The measured rows of an encoding, one for each seed and length."""
        rows = self.rows
        return rows[(rows["name"] == name) & (rows["protocol"] == protocol) & (rows["measure"] == measure)]

    def losses(self, name: str, protocol: str | None = None) -> dict[int, UnitLosses]:
        """The losses of documents at each length by one protocol, by default the first."""
        wanted = protocol or self.summary.iloc[0]["protocol"]
        return losses(self.measured(name, wanted, self.measure), self.report.results.units)

    def change(self, name: str, factor: int, protocol: str | None = None) -> Estimate | None:
        """The paired change of the loss from the trained length; None if one of the two has no value."""
        own = self.losses(name, protocol)
        if not {self.trained, factor * self.trained} <= own.keys():
            return None
        return own[factor * self.trained].less(own[self.trained])

    def at(self, name: str, factor: int, protocol: str | None = None) -> pd.Series | None:
        """The row at `factor` times the trained length; None if there is no value."""
        rows = self.at_lengths(name, protocol)
        rows = rows[(rows["length"] == factor * self.trained) & rows["mean"].notna()]
        return rows.iloc[0] if len(rows) else None

    def family(self, name: str) -> str:
        """The family of an encoding, or of the first one that it is built of in this study."""
        name = stored_name(name)
        spec: Any = self.study.options.get(name, {})
        spec = spec if isinstance(spec, list) else {"name": name, **spec}
        while not isinstance(spec, str):
            spec = (
                spec[0] if isinstance(spec, list) else spec.get("of") or spec.get("pattern") or spec["name"]
            )
        return registry.encodings.describe(spec).family


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
    title = title or study.title
    found = _measured(study, shown := of_common_seeds(entries), title, changed)
    if len(shown) < len(entries):
        found = replace(found, further=_measured(study, entries, title, changed))
    return found


def of_common_seeds(entries: Sequence[Entry]) -> list[Entry]:
    """Entries of the seeds shared by most encodings (text studies only). Seeds shift all losses together, so
    means over different seeds do not compare."""
    seeds = Counter(seed for _, seed in {(one.encoding, one.seed) for one in entries})
    most = max(seeds.values())
    return [one for one in entries if one.study.is_task or seeds[one.seed] == most]


def _measured(study: Study, entries: Sequence[Entry], title: str, changed: bool) -> Measured:
    # A checkpoint in a window of its trained length is a baseline of text.
    window = {} if study.is_task else {"model.window": study.recipe("none", 0).data.sequence_length}
    runs = shown_runs(entries, changed or window)
    named = (run.label for run in runs if encoding_of(run) == REFERENCE)
    reference = next(named, None) if study.leaderboard and not changed else None
    report = report_on(runs, reference=reference, force=True)
    first = report.results.rows.groupby("encoding", sort=False)[["run", "changed"]].first()
    labels = {
        label: curve_name(encoding_of(report.results.runs[run]), json.loads(changed))
        for label, run, changed in first.itertuples(name=None)
    }
    return Measured(study, report, labels, title)
