"""A report on one run or on several: results, summary, caveats and verdict. Every output is made from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from zoo.comparison import caveats
from zoo.comparison.caveats import Caveat
from zoo.comparison.comparable import KeyDifference, differences, on_common_targets
from zoo.comparison.findings import verdict
from zoo.comparison.frame import Results, Series, chosen, series_of, unique
from zoo.comparison.models import models_results
from zoo.comparison.runs import (
    RunInfo,
    command,
    evaluate_command,
    options,
    read_runs,
    training_speed,
    validated_recipe,
)
from zoo.comparison.statistics import costs, only_rivals, summary
from zoo.errors import InputError, Problem
from zoo.evaluation.measurement import Measurement
from zoo.files import shortest
from zoo.runs.card import read_card
from zoo.runs.folder import METRICS

if TYPE_CHECKING:
    import pandas as pd

OUT = Path("comparison")
NOT_COMPARABLE = "NOT COMPARABLE"
VARIES = "differs"
TOKENIZER = ("card", "fingerprint.tokenizer")
COLUMNS = (
    "encoding", "protocol", "parameters", "length", "train_length", "measure", "mean", "sd", "low", "high",
    "interval", "rank", "reference", "difference", "difference_low", "difference_high",
    "effective_length", "effective_length_at_least", "seeds", "measured", "counted", "count", "note",
    "added_parameters", "parameter_count", "training_tokens_per_second",
    "evaluation_tokens_per_second", "peak_memory_mb", "runs", "comparable",
)  # fmt: skip
"""Columns of compare.csv."""


@dataclass(frozen=True)
class Report:
    """A report.

    Attributes:
        summary: `zoo.comparison.statistics.summary`; empty where nothing was measured.
        verdict: the items of a list (`zoo.comparison.findings.verdict`).
        costs: `zoo.comparison.statistics.costs`.
        differences: why the runs are not comparable; empty if they are.
        about: names and values that all runs share.
        command: the command that makes the report again.
        subject: encoding, or model.
    """

    title: str
    results: Results
    summary: pd.DataFrame
    costs: pd.DataFrame
    differences: tuple[str, ...] = ()
    about: tuple[tuple[str, str], ...] = ()
    command: str = ""
    caveats: tuple[Caveat, ...] = ()
    verdict: tuple[str, ...] = ()
    subject: str = "encoding"

    @property
    def panels(self) -> list[pd.DataFrame]:
        """The rows of each protocol with its parameters."""
        return [panel for _, panel in self.summary.groupby("panel", sort=False)]

    @property
    def table(self) -> pd.DataFrame:
        """The summary with the costs of each encoding, as compare.csv has it."""
        comparable = f"no: {'; '.join(self.differences)}" if self.differences else "yes"
        if self.subject != "encoding":
            comparable = f"as {self.subject}s, in bits per byte of the same documents"
        own = self.costs.rename(columns={"parameters": "parameter_count"})
        own = own[["added_parameters", "parameter_count", "training_tokens_per_second"]]
        table = self.summary.rename(columns={"tokens_per_second": "evaluation_tokens_per_second"})
        table = table.join(own, on="encoding").assign(comparable=comparable)
        return table[[*COLUMNS]].astype(dict.fromkeys(("rank", "count", "effective_length"), "Int64"))


def build(
    paths: Sequence[Path],
    protocols: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    force: bool = False,
    out: Path = OUT,
    reference: str | None = None,
    models: bool = False,
) -> Report:
    """The report that compares runs.

    Args:
        paths: run folders.
        protocols: names; by default all by which one of the runs was evaluated.
        lengths: in tokens; by default all at which one was.
        force: compare runs that are not comparable, and mark it on every output.
        out: the folder in the report's command.
        reference: the label of the curve for differences; by default the best at the trained length.
        models: compare them as models, which may differ in anything (`zoo.comparison.models`).

    Raises:
        InputError: runs that cannot be read, were not evaluated or are not comparable.
    """
    wanted = options(protocols, lengths)
    runs = chosen(read_runs(paths, wanted=(protocols, lengths)), protocols, lengths)
    words = ["compare", *["--models"] * models, *map(str, paths), *wanted]
    words += ["--reference", reference] if reference else []
    words += ["--out", str(out)] * (out != OUT) + ["--force"] * force
    if models:
        results, notes, about = models_results(runs, evaluate_command(runs, protocols, lengths))
        table = summary(results, reference)
        text = runs[0].recipe["data"]["name"]
        return Report(
            title=f"{table['encoding'].nunique()} models on {text}: bits per byte of the same documents",
            results=results, summary=table, costs=costs(results, table), about=tuple(about),
            command=command(words), caveats=tuple(notes),
            verdict=verdict(table, subject="model"), subject="model",
        )  # fmt: skip
    refused = differences(runs)
    if refused and not force:
        raise _refusal(refused)
    results, alone = only_rivals(Results.of(series_of(on_common_targets(runs)[0])))
    if results.rows["note"].notna().all():
        rows = results.rows[["protocol", "length", "note"]].drop_duplicates().itertuples(index=False)
        notes = "; ".join(f"{row.protocol} at {row.length}: {row.note}" for row in rows)
        raise InputError(f"nothing was measured that could be compared: {notes}")
    table = summary(results, reference)
    found = [*caveats.of_runs(runs), *caveats.of_rows(results), *caveats.of_seeds(results)]
    found += caveats.of_gaps(results, table, alone)
    return Report(
        title=_title(runs, table["encoding"].nunique()), results=results, summary=table,
        costs=costs(results, table), differences=tuple(map(str, refused)), about=tuple(about_runs(runs)),
        command=command(words), caveats=tuple(found), verdict=verdict(table, refused=len(refused)),
    )  # fmt: skip


def _title(runs: Sequence[RunInfo], count: int) -> str:
    data = common(run.recipe["data"]["name"] for run in runs)
    length = common(run.recipe["data"]["sequence_length"] for run in runs)
    return (
        f"{count} encoding{'s' * (count > 1)}"
        + (f" on {data}" if data != VARIES else "")
        + (f", trained at {length} tokens" if length != VARIES else "")
    )


def _refusal(found: Sequence[KeyDifference | str]) -> InputError:
    """Why runs are not compared, and the commands that follow from it."""
    lines = ["not comparable:", *(f"  {one}" for one in found)]
    keys = [one for one in found if isinstance(one, KeyDifference)]
    if keys:
        lines[0] += " they differ in more than the encoding and the seed"
        pair = [runs[0] for _, runs in keys[0].values[:2]]
        lines.append(f"see all differences between two of them: {command(['compare', '--diff', *pair])}")
    if any(one.key == TOKENIZER for one in keys):
        lines.append("compare them as models, in bits per byte of the same documents: --models")
    lines.append("compare them nevertheless, marked on every output: --force")
    return InputError(map(Problem, lines))


def run_report(folder: Path, measurements: Iterable[Measurement], name: str | None = None) -> Report:
    """The report of one run: a curve for each checkpoint, and for each change of the encoding.

    Args:
        name: of the run in the title; by default that in its recipe.
    """
    try:
        recipe, card = validated_recipe(folder), read_card(folder)
        speed = training_speed(folder / METRICS)
    except InputError:  # a checkpoint without its run
        recipe, card, speed = {}, {}, None
    same: dict[tuple[str, str, int, str], list[Measurement]] = {}
    for one in measurements:
        changed = json.dumps(one.changed, sort_keys=True)
        same.setdefault((one.encoding, one.checkpoint, one.seed, changed), []).append(one)
    several = len({checkpoint for _, checkpoint, _, _ in same}) > 1
    runs, series = [], []
    for (encoding, checkpoint, seed, _), own in same.items():
        label = f"{encoding} ({PurePosixPath(checkpoint).name})" if several else encoding
        seeded, labelled = recipe | {"seed": seed}, card | {"encoding": encoding}
        runs.append(RunInfo(shortest(folder), seeded, labelled, tuple(own), speed=speed))
        series.append(Series(label, (runs[-1],), own[0].changed))
    results = Results.of(unique(series))
    table = summary(results)
    names = sorted({one.run for own in same.values() for one in own})
    return Report(
        title=f"{name or ', '.join(names)} by length", results=results, summary=table,
        costs=costs(results, table) if card and len(table) else costs(results, table[:0]),
        about=tuple(about_runs(runs)),
        caveats=(*caveats.of_rows(results), *caveats.of_unmeasured(results, table)),
        verdict=verdict(table) if table["encoding"].nunique() > 1 else (),
    )  # fmt: skip


def about_runs(runs: Sequence[RunInfo]) -> Iterator[tuple[str, str]]:
    """Names and values that runs share."""
    for name, read in _ABOUT.items():
        try:
            value = common(read(run) for run in runs)
        except (KeyError, TypeError):  # a checkpoint without its run
            continue
        if value is not None:
            yield name, value if isinstance(value, str) else f"{value:,}"
    yield "seeds", ", ".join(map(str, sorted({run.seed for run in runs})))
    if len(paths := {run.path for run in runs}) > 1:
        yield "runs", str(len(paths))


def _asked_for(data: dict[str, Any]) -> int | None:
    """The vocabulary in the recipe of a run whose card does not have its size."""
    return None if data.get("tokenizer") else data.get("vocab_size")


_ABOUT = {
    "task": lambda run: run.recipe["task"]["name"],
    "data": lambda run: run.recipe["data"]["name"],
    "vocabulary": lambda run: run.card.get("vocab_size", _asked_for(run.recipe["data"])),
    "model": lambda run: "{kind}, {num_layers} layers of width {d_model}, {num_heads} heads".format(
        **run.recipe["model"]
    ),
    "parameters without the encoding's": lambda run: run.card["parameters"]["other"],
    "trained length (tokens)": lambda run: run.recipe["data"]["sequence_length"],
    "sequences per step": lambda run: run.recipe["data"]["batch_size"],
    "steps": lambda run: run.card["steps"],
    "tokens seen": lambda run: run.card["tokens_seen"],
}


def common(values: Iterable[Any]) -> Any:
    """The value that all have, or `VARIES`."""
    values = list(values)
    return values[0] if all(value == values[0] for value in values) else VARIES
