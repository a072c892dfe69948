"""Caveats: what a reader of a comparison should know, although the runs are comparable."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from zoo.comparison.comparable import differing, on_common_targets, value_as_text
from zoo.comparison.formatting import kind_text
from zoo.comparison.frame import KIND, Results
from zoo.comparison.paired import FEWEST_SEEDS
from zoo.comparison.runs import SPEED, RunInfo, changes, evaluate_command, settings
from zoo.comparison.statistics import NOT_FINITE
from zoo.evaluation.measurement import TOO_FEW
from zoo.recipe.diff import changes_rounding, decides_speed, flatten, is_recorded_on_resume
from zoo.recipe.rules import no_protocol
from zoo.runs.folder import METRICS


@dataclass(frozen=True)
class Caveat:
    """A caveat of one kind, for all `runs` and `lengths` where it names none. `command` removes it."""

    kind: str
    text: str
    runs: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    command: str = ""

    @property
    def line(self) -> str:
        """The caveat without its command."""
        at = f" at {', '.join(map(str, self.lengths))}" if self.lengths else ""
        return f"{', '.join(self.runs)}{': ' * bool(self.runs)}{self.text}{at}"

    def __str__(self) -> str:
        return f"{self.line}: {self.command}" if self.command else self.line


def of_runs(runs: Sequence[RunInfo]) -> list[Caveat]:
    """Caveats of the runs themselves."""
    versions = []
    for run in runs:
        packages = flatten(run.card.get("versions") or {}).items()
        own = {("version of", key): version for key, version in packages}
        versions.append((run.path, own | {("git", "commit"): run.card.get("git_commit")}))
    found = [Caveat("versions", str(one)) for one in differing(versions)]
    if all(run.card.get("finished") is not True for run in runs):
        found.append(Caveat("unfinished", "no run is finished"))
    found += [one for run in runs for one in _resumed(run)]
    for key, values in {key: values for run in runs for key, values in run.grid.items()}.items():
        tuned = f"recipe {key} was chosen for each encoding from {values} by its validation loss"
        found.append(Caveat("tuned", tuned))
    computed = []
    for run in runs:
        keys = flatten(run.recipe).items()
        computed.append((run.path, {("recipe", key): value for key, value in keys if decides_speed(key)}))
    for one in differing(computed):
        found.append(Caveat("speed", f"{one}: tokens per second do not compare"))
    if unknown := tuple(run.path for run in runs if run.speed is None):
        found.append(Caveat("speed", f"no {SPEED} in {METRICS}: the training speed is unknown", unknown))
    found += [Caveat("left out", text, (run.path,)) for run in runs for text in run.left_out]
    return [*found, *(Caveat("targets", text) for text in on_common_targets(runs)[2])]


def _resumed(run: RunInfo) -> Iterable[Caveat]:
    """Changes at a resume that changed the rounding or the code."""
    noted = [one for one in run.card.get("changed_on_resume") or () if one["step"] < run.card["steps"]]
    by_rounding = [one for one in noted if changes_rounding(one["key"]) or one["key"] == "device"]
    by_code = [one for one in noted if one["key"] != "device" and not is_recorded_on_resume(one["key"])]
    for group, effect in (
        (by_rounding, "its weights equal those of an uninterrupted run up to rounding and random draws"),
        (by_code, "it was trained by more than one version of the code"),
    ):
        parts = (
            f"{one['key']} from {value_as_text(one['from'])} to {value_as_text(one['to'])} "
            f"at step {one['step']}"
            for one in group
        )
        if group:
            yield Caveat("resumed", f"changed when it was resumed: {', '.join(parts)}: {effect}", (run.path,))


def of_rows(results: Results) -> list[Caveat]:
    """Caveats of measured rows: examples that training may have seen, and remarks."""
    rows = results.rows
    texts = rows["protocol"].map(lambda name: f"{name}: ") + rows["remark"].fillna("")
    seen = rows["seen_in_training"].map("training may have seen {:.0%} of the scored examples".format)
    found = []
    for kind, column, kept in (
        ("seen", f"{TOO_FEW}: " + seen, rows["seen_in_training"] > 0),
        ("remark", texts, rows["remark"].notna()),
    ):
        runs: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
        for (text, run), own in rows[kept].groupby([column[kept], "run"]):
            runs[text, tuple(sorted(set(own["length"])))].append(run)
        found += [Caveat(kind, text, tuple(paths), at) for (text, at), paths in runs.items()]
    return found


def of_seeds(results: Results) -> list[Caveat]:
    """Caveats if the curves have other seeds, or too few of them."""
    groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for label, own in results.rows.groupby("encoding", sort=False):
        groups[tuple(sorted(set(own["seed"])))].append(label)
    parts = [
        f"{', '.join(map(str, seeds))} for {', '.join(labels)}" for seeds, labels in sorted(groups.items())
    ]
    found = [Caveat("seeds", f"the seeds are not the same: {'; '.join(parts)}")] if len(parts) > 1 else []
    # Of one seed each the verdict tells.
    if min(map(len, groups)) < FEWEST_SEEDS and max(map(len, groups)) > 1:
        text = f"fewer than {FEWEST_SEEDS} seeds are too few to rank over: no interval is over seeds"
        found.append(Caveat("seeds", text))
    return found


def of_gaps(results: Results, summary: pd.DataFrame, alone: Sequence[tuple[str, str, str]]) -> list[Caveat]:
    """Protocols and lengths that some runs lack, or that could not be measured, or that are left out.

    Args:
        alone: protocol, parameters and encoding of measurements without a rival.
    """
    texts = [f"{kind_text(kind)} was measured for {label} alone, and is left out" for *kind, label in alone]
    gaps = [*_missing(results, summary), *of_unmeasured(results, summary)]
    return [*gaps, *(Caveat("alone", text) for text in texts)]


def _missing(results: Results, summary: pd.DataFrame) -> list[Caveat]:
    """Measurements that a command would add; those of one command are one caveat."""
    lacking: dict[tuple, list[str]] = defaultdict(list)
    curves = results.rows[["encoding", "run", "changed"]].drop_duplicates()
    measured = {key: own for key, own in results.rows.groupby([*curves, *KIND])}
    for kind, panel in summary.groupby(KIND, sort=False):
        parameters = json.loads(kind[1])
        window = parameters.get("window")
        for label, path, changed in curves.itertuples(index=False):
            own = measured.get((label, path, changed, *kind))
            unread = window and own is not None and own["note"].notna().all()
            lengths = sorted(set(panel["length"]) - set(() if own is None else own["length"]))
            # Runs that are compared by force may be of other tasks.
            if lengths and not unread and not no_protocol(kind[0], results.runs[path].recipe["task"]["name"]):
                # The bins of a window come from asking for the window.
                ask = (window,) if window else tuple(lengths)
                change = json.loads(changed)
                sets = (*settings(parameters), *changes(change))
                lacking[kind, label if change else "", ask, sets].append(path)
    commands: dict[tuple, list[tuple[str, str, str]]] = defaultdict(list)
    for (kind, label, ask, sets), paths in lacking.items():
        commands[tuple(sorted(paths)), label, ask, sets].append(kind)
    found = []
    for (paths, label, ask, sets), kinds in commands.items():
        text = f"not evaluated{f' as {label}' if label else ''} by {', '.join(map(kind_text, kinds))}"
        protocols = [*dict.fromkeys(protocol for protocol, *_ in kinds)]
        command = evaluate_command((results.runs[path] for path in paths), protocols, ask, sets)
        found.append(Caveat("not evaluated", text, paths, ask, command))
    return found


def of_unmeasured(results: Results, summary: pd.DataFrame) -> list[Caveat]:
    """Protocols and lengths without a column in the tables, with the reason."""
    columns = ["protocol", "parameters", "targets", "length"]
    known = set(summary[columns].itertuples(index=False, name=None))
    keys = results.rows[columns].itertuples(index=False, name=None)
    rows = results.rows[[key not in known for key in keys]].fillna({"note": NOT_FINITE})
    alike: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
    for (protocol, parameters, note), own in rows.groupby(["protocol", "parameters", "note"], sort=False):
        alike[note, tuple(sorted(set(own["length"])))].append(kind_text((protocol, parameters)))
    return [
        Caveat("unmeasured", f"nothing could be measured by {', '.join(kinds)} ({note})", (), lengths)
        for (note, lengths), kinds in alike.items()
    ]
