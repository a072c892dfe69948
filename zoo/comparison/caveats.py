"""Caveats: sentences that a reader of a comparison should know, although the runs are comparable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from zoo.comparison.comparable import differing, on_common_targets, value_as_text
from zoo.comparison.formatting import kind_text
from zoo.comparison.frame import KIND, Results
from zoo.comparison.run_info import RunInfo
from zoo.comparison.runs import SPEED
from zoo.comparison.statistics import NOT_FINITE
from zoo.evaluation.measurement import TOO_FEW
from zoo.recipe.diff import changes_rounding, decides_speed, flatten, is_recorded_on_resume
from zoo.runs.folder import METRICS


def of_runs(runs: Sequence[RunInfo]) -> list[str]:
    """Caveats of the runs themselves."""
    versions, computed = [], []
    for run in runs:
        packages = flatten(run.card.get("versions") or {}).items()
        own = {("version of", key): version for key, version in packages}
        versions.append((run.path, own | {("git", "commit"): run.card.get("git_commit")}))
        keys = flatten(run.recipe).items()
        computed.append((run.path, {("recipe", key): value for key, value in keys if decides_speed(key)}))
    found = [str(one) for one in differing(versions)]
    if not any(run.card.get("finished") for run in runs):
        found.append("no run is finished")
    found += [text for run in runs for text in _resumed(run)]
    for key, values in {key: values for run in runs for key, values in run.grid.items()}.items():
        found.append(f"recipe {key} was chosen for each encoding from {values} by its validation loss")
    found += dict.fromkeys(text for run in runs for text in _at_the_edge(run))
    found += [f"{one}: tokens per second do not compare" for one in differing(computed)]
    if unknown := [run.path for run in runs if run.speed is None]:
        found.append(f"{', '.join(unknown)}: no {SPEED} in {METRICS}: the training speed is unknown")
    found += [f"{run.path}: {text}" for run in runs for text in run.left_out]
    return found + on_common_targets(runs)[2]


def _at_the_edge(run: RunInfo) -> Iterator[str]:
    """Chosen numbers beyond which the grid has no value."""
    chosen = flatten(run.recipe)
    for key, values in run.grid.items():
        value, numbers = chosen.get(key), sorted(one for one in values if type(one) in (int, float))
        if value in (*numbers[:1], *numbers[-1:]):
            yield (
                f"recipe {key} of {run.label}: {value_as_text(value)} is the edge of the grid "
                f"{values}, and a better value may lie beyond it: extend the grid"
            )


def _resumed(run: RunInfo) -> Iterator[str]:
    """Changes at a resume that changed the rounding or the code."""
    for one in run.card.get("changed_on_resume") or ():
        key, step = one["key"], one["step"]
        matters = key == "device" or changes_rounding(key) or not is_recorded_on_resume(key)
        if matters and step < run.card["steps"]:
            change = f"{key} from {value_as_text(one['from'])} to {value_as_text(one['to'])}"
            yield f"{run.path}: resumed at step {step} with a change that alters rounding or code: {change}"


def of_rows(results: Results) -> list[str]:
    """Caveats of measured rows: examples that training may have seen, and remarks."""
    rows = results.rows
    seen = f"{TOO_FEW}: training may have seen {{:.0%}} of the scored examples"
    texts = rows.loc[rows["seen_in_training"] > 0, "seen_in_training"].map(seen.format)
    texts = pd.concat([texts, (rows["protocol"] + ": " + rows["remark"].fillna(""))[rows["remark"].notna()]])
    noted = rows[["run", "length"]].join(texts.rename("text"), how="inner")
    return [f"{paths}: {text}{where}" for (text, where), paths in _grouped(noted, "text", "run")]


def _grouped(rows: pd.DataFrame, text: str, who: str) -> Iterable[tuple[tuple[str, str], str]]:
    """Texts with their lengths, and all to whom both apply."""
    lengths = rows.groupby([text, who], sort=False)["length"].agg(at).reset_index()
    return lengths.groupby([text, "length"], sort=False)[who].agg(", ".join).items()


def of_seeds(results: Results) -> list[str]:
    """A caveat if the curves have other seeds."""
    seeds = results.rows.groupby("encoding", sort=False)["seed"].agg(lambda own: tuple(sorted(set(own))))
    groups = seeds.reset_index().groupby("seed")["encoding"].agg(", ".join)
    parts = [f"{', '.join(map(str, own))} for {labels}" for own, labels in groups.items()]
    return [f"the seeds are not the same: {'; '.join(parts)}"] if len(parts) > 1 else []


def of_unmeasured(results: Results, summary: pd.DataFrame) -> list[str]:
    """Protocols and lengths without a column in the tables, with the reason."""
    columns = [*KIND, "length"]
    shown = summary[columns].drop_duplicates().astype(results.rows.dtypes[columns])
    rows = results.rows.merge(shown, "left", columns, indicator="shown")
    rows = rows[rows["shown"] == "left_only"].fillna({"note": NOT_FINITE})
    rows["kind"] = [kind_text(kind) for kind in rows[KIND].itertuples(index=False)]
    kinds = _grouped(rows, "note", "kind")
    return [f"nothing could be measured by {kind} ({note}){where}" for (note, where), kind in kinds]


def at(lengths: Iterable[int]) -> str:
    return f" at {', '.join(map(str, sorted(set(lengths))))}"
