"""A report on one run or on several: results, summary, costs and caveats. Every output is made from it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any

from zoo.comparison import caveats
from zoo.comparison.comparable import KeyDifference, differences, on_common_targets
from zoo.comparison.formatting import kind_text
from zoo.comparison.frame import Results, by_label, chosen, series_of
from zoo.comparison.models import models_results
from zoo.comparison.paired import RATE
from zoo.comparison.run_info import UNKNOWN, RunInfo
from zoo.comparison.runs import evaluate_command, options, read_runs, run_info
from zoo.comparison.statistics import costs, only_rivals, summary
from zoo.console import command
from zoo.errors import InputError, Problem
from zoo.evaluation.measurement import Measurement
from zoo.files import shortest

if TYPE_CHECKING:
    import pandas as pd

OUT = Path("comparison")
NOT_COMPARABLE = "NOT COMPARABLE"
VARIES = "differs"
TOKENIZER = ("card", "fingerprint.tokenizer")
COLUMNS = (
    "encoding", "protocol", "parameters", "length", "train_length", "measure", "mean", "sd", "low", "high",
    "interval", "rank", "reference", "difference", "difference_low", "difference_high",
    "change", "change_low", "change_high", "beyond", "beyond_low", "beyond_high", "rank_from", "rank_to",
    "effective_length", "effective_length_at_least", "seeds", "measured", "counted", "count", "note",
    "added_parameters", "parameter_count", "training_tokens_per_second",
    "evaluation_tokens_per_second", "peak_memory_mb", "tuned", "tuned_losses", "tuned_grid",
    "runs", "comparable",
)  # fmt: skip
"""Columns of compare.csv."""
_COUNTS = ("rank", "rank_from", "rank_to", "count", "effective_length")


@dataclass(frozen=True)
class Report:
    """A report.

    Attributes:
        summary: `zoo.comparison.statistics.summary`; empty where nothing was measured.
        costs: `zoo.comparison.statistics.costs`.
        differences: why the runs are not comparable; empty if they are.
        about: names and values that all runs share.
        command: the command that makes the report again.
        subject: encoding, or model.
        floor: an accuracy above which a task begins to count.
    """

    title: str
    results: Results
    summary: pd.DataFrame
    costs: pd.DataFrame
    about: Mapping[str, str]
    caveats: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    command: str = ""
    subject: str = "encoding"
    floor: float | None = None

    @property
    def panels(self) -> list[pd.DataFrame]:
        """The rows of each protocol with its parameters."""
        return [panel for _, panel in self.summary.groupby("panel", sort=False)]

    @property
    def tuned(self) -> dict[str, dict[str, Any]]:
        """The choice from a grid (`RunInfo.tuned`) for each encoding that has one."""
        paths = self.results.rows.groupby("encoding", sort=False)["run"].first()
        found = {label: self.results.runs[path].tuned for label, path in paths.items()}
        return {label: found[label] for label in self.costs.index if found[label]}

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
        for column, text in _TUNED.items():
            table[column] = table["encoding"].map({label: text(one) for label, one in self.tuned.items()})
        return table[[*COLUMNS]].astype(dict.fromkeys(_COUNTS, "Int64"))


_TUNED = {
    "tuned": lambda one: " ".join(one["chosen"]),
    "tuned_losses": lambda one: json.dumps(one.get("losses")),
    "tuned_grid": lambda one: json.dumps(one["grid"]),
}


def build(
    paths: Sequence[Path],
    protocols: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    force: bool = False,
    out: Path = OUT,
    reference: str | None = None,
    models: bool = False,
    floor: float | None = None,
) -> Report:
    """The report that compares runs.

    Args:
        paths: run folders, or tables of stored runs.
        protocols: names; by default all by which one of the runs was evaluated.
        lengths: in tokens; by default all at which one was.
        force: compare runs that are not comparable, and mark it on every output.
        out: the folder in the report's command.
        reference: the label of the curve for differences; by default the best at the trained length.
        models: compare them as models, which may differ in anything (`zoo.comparison.models`).
        floor: rank by the score above this accuracy, too.

    Raises:
        InputError: runs that were not evaluated or are not comparable.
    """
    runs = chosen(read_runs(paths), protocols, lengths)
    words = ["compare", *["--models"] * models, *map(str, paths), *options(protocols, lengths)]
    words += ["--reference", reference] if reference else []
    words += ["--floor", f"{floor:g}"] if floor is not None else []
    words += ["--out", str(out)] * (out != OUT) + ["--force"] * force
    data = common(run.trained_on for run in runs)
    if models:
        remedy = evaluate_command([run.path for run in runs], protocols, lengths)
        results, found, about = models_results(runs, remedy)
        table = summary(results, reference)
        texts = {json.loads(one).get("data", runs[0].data) for one in table["parameters"].unique()}
        named = ", ".join(sorted(PurePath(text).name for text in texts))
        title = f"{table['encoding'].nunique()} models on {named}: bits per byte of the same documents"
        return Report(
            title, results, table, costs(results, table), about, tuple(found),
            command=command(*words), subject="model",
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
    if floor is not None and not (0 <= floor < 1 and (table["measure"] == RATE).any()):
        raise InputError(f"--floor {floor:g}: of an accuracy that was measured, from 0 to below 1")
    found = caveats.of_runs(runs) + caveats.of_rows(results) + caveats.of_seeds(results)
    found += caveats.of_unmeasured(results, table)
    found += [f"{kind_text(kind)} was measured for {label} alone, and is left out" for *kind, label in alone]
    count = table["encoding"].nunique()
    length = common(run.recipe["data"]["sequence_length"] for run in runs)
    title = f"{count} encoding{'s' * (count > 1)}" + (f" on {data}" if data not in (VARIES, UNKNOWN) else "")
    return Report(
        title + (f", trained at {length} tokens" if length != VARIES else ""), results, table,
        costs(results, table), about_runs(runs), tuple(found),
        tuple(map(str, refused)), command(*words), floor=floor,
    )  # fmt: skip


def _refusal(found: Sequence[KeyDifference | str]) -> InputError:
    """Why runs are not compared, and the commands that follow from it."""
    lines = ["not comparable:", *(f"  {one}" for one in found)]
    keys = [one for one in found if isinstance(one, KeyDifference)]
    if keys:
        lines[0] += " they differ in more than the encoding and the seed"
        pair = [runs[0] for _, runs in keys[0].values[:2]]
        if all(Path(one).is_dir() for one in pair):  # not of runs in a table
            lines.append(f"see all differences between two of them: {command('compare', '--diff', *pair)}")
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
        run = run_info(folder)
    except InputError:  # a checkpoint without its run
        run = RunInfo(str(folder), {}, {})
    same: dict[tuple[str, str, int, str], list[Measurement]] = defaultdict(list)
    for one in measurements:
        same[one.encoding, one.checkpoint, one.seed, one.change].append(one)
    several = len({checkpoint for _, checkpoint, _, _ in same}) > 1
    curves = []
    for (encoding, checkpoint, seed, _), own in same.items():
        label = f"{encoding} ({PurePosixPath(checkpoint).name})" if several else encoding
        changes = {"recipe": run.recipe | {"seed": seed}, "card": run.card | {"encoding": encoding}}
        curves.append((label, [replace(run, path=shortest(folder), measurements=tuple(own), **changes)]))
    results = Results.of(by_label(curves))
    table, names = summary(results), sorted({own[0].run for own in same.values()})
    return Report(
        f"{name or ', '.join(names)} by length", results, table,
        costs(results, table if run.card else table[:0]), about_runs([own[0] for _, own in curves]),
        (*caveats.of_rows(results), *caveats.of_unmeasured(results, table)),
    )  # fmt: skip


def about_runs(runs: Sequence[RunInfo]) -> dict[str, str]:
    """Names and values that runs share."""
    each = [_about(run) for run in runs]
    found = {name: common(one.get(name) for one in each) for name in each[0]}
    if found.get("scored on") in ("", found.get("data")):
        found.pop("scored on", None)
    found["seeds"] = ", ".join(map(str, sorted({run.seed for run in runs})))
    paths = {run.path for run in runs}
    found |= {"runs": len(paths)} if len(paths) > 1 else {}
    return {
        name: one if isinstance(one, str) else f"{one:,}" for name, one in found.items() if one is not None
    }


def _about(run: RunInfo) -> dict[str, Any]:
    """Facts of a run; none of a checkpoint without its run."""
    if "task" not in run.recipe:
        return {}
    data, model, card = run.recipe["data"], run.recipe["model"], run.card
    return {
        "task": run.recipe["task"]["name"], "data": run.trained_on, "scored on": run.scored_on,
        "vocabulary": card.get("vocab_size", None if data.get("tokenizer") else data.get("vocab_size")),
        "model": "{kind}, {num_layers} layers of width {d_model}, {num_heads} heads".format(**model),
        "parameters without the encoding's": card.get("parameters", {}).get("other"),
        "trained length (tokens)": data["sequence_length"], "sequences per step": data["batch_size"],
        "steps": card.get("steps"), "tokens seen": card.get("tokens_seen"),
    }  # fmt: skip


def common(values: Iterable[Any]) -> Any:
    """The value that all have, or `VARIES`."""
    values = list(values)
    return values[0] if all(value == values[0] for value in values) else VARIES
