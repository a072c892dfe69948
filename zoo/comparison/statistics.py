"""Statistics of results: means over seeds, intervals, paired differences and ranks, as one table."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import pandas as pd

from zoo.comparison.frame import COUNTS, KIND, MEASURES, Results
from zoo.comparison.paired import (
    Estimate,
    Sample,
    basis_of,
    difference,
    make_sample,
    mean_over_lengths,
    ranks,
)
from zoo.comparison.ranking import of_samples
from zoo.errors import InputError, hint
from zoo.registry import tasks

NOT_FINITE, NOT_EVALUATED = "not finite", "not evaluated"
MAIN = ("accuracy", "bits_per_byte", "loss_nats")
"""The measure of a protocol: the first of these that all its rows have, else the first other one."""
ABOUT = ("protocol", "parameters", "targets", "axis", "explanation")
ESTIMATES = ("difference", "behind", "change", "beyond", "beyond_behind")
NUMBERS = (
    "mean", "sd", "low", "high", "rank", *(f"{a}{b}" for a in ESTIMATES for b in ("", "_low", "_high")),
    "rank_from", "rank_to", "effective_length", "count", "tokens_per_second", "peak_memory_mb", *MEASURES,
)  # fmt: skip
COLUMNS = (
    "panel", *ABOUT, "measure", "lower_is_better", "encoding", "length", "train_length", "interval",
    "reference", "no_interval", "unranked", "effective_length_at_least", "seeds", "measured", "counted",
    "note", "values", "runs", *NUMBERS,
)  # fmt: skip
SHARE_KEPT = 0.85
"""Share of the accuracy at the trained length: the rule of NoLiMa (Modarressi et al. 2025,
arXiv:2502.05167)."""
LEARNED = 0.5
"""A task with a lower accuracy at the trained length is not learned, and has no effective length."""
UNKNOWN_MACHINE = "a machine that is not recorded"
NATS_LOST = 0.05
"""Per token, above the loss at the trained length."""


def summary(results: Results, reference: str | None = None) -> pd.DataFrame:
    """A row for each protocol with its parameters (`panel`), encoding and length, the best encoding first.

    `mean`, `sd` and `values` are over the seeds, `low` and `high` end the 95 % interval, of `interval`.
    `difference` is the mean less that of `reference`, `behind` the mean less that of the best at this length,
    `change` the mean less that at the trained length; all are paired, and `no_interval` says why there is no
    interval. `rank` is that of `zoo.comparison.paired.ranks`, and `unranked` says why there is none. `note`
    says why a value is missing. The same at every length of a curve are: `beyond`, the mean over the lengths
    above the trained one, and `beyond_behind`, less that of the best; `rank_from` and `rank_to`, the rank
    interval by it (`zoo.comparison.ranking`); and `effective_length`.

    Args:
        reference: a label; by default the best at the trained length of the first panel. A panel without it
            has its own best.

    Raises:
        InputError: no curve has that label.
    """
    kinds = {kind: rows for kind, rows in results.rows.groupby(KIND)}
    panels = [_means(kinds[kind], results) for kind in sorted(kinds, key=_place)]
    panels = [one for one in panels if one is not None]
    panels = [one for one in panels if one["sample"].notna().any()] or panels
    order = {}
    for panel in panels:
        order |= {
            label: len(order) + place for place, label in enumerate(_order(panel)) if label not in order
        }
    if reference is not None and reference not in order:
        raise InputError(f"--reference: no curve is called {reference!r}; {hint(reference, order)}")
    made, chosen = [], reference
    for number, panel in enumerate(panels):
        panel = panel.sort_values(["encoding", "length"], key=lambda one: one.map(order).fillna(one))
        means = _signed(panel)[lengths_of(panel)[0]]
        own = means.idxmin() if means.notna().any() else means.index[0]
        chosen = chosen or own
        compared = _compared(panel, chosen if chosen in means.index else own)
        made.append(panel.assign(panel=number).merge(compared, on=["encoding", "length"]))
    table = pd.concat(made) if made else pd.DataFrame()
    table = table.reset_index(drop=True).reindex(columns=COLUMNS)
    return table.astype(dict.fromkeys(NUMBERS, float))


def lengths_of(panel: pd.DataFrame) -> tuple[int, int]:
    """The trained length of a panel, and the length that decides the order; the same where the trained one
    was not measured.

    The longest length at which more than half of the curves have a value decides, else the one at which most
    have: an encoding that ends at the trained length does not decide the order.
    """
    counts, curves = panel.groupby("length")["mean"].count(), panel["encoding"].nunique()
    most = counts.index[2 * counts > curves]
    decisive = int(most.max() if len(most) else counts[counts == counts.max()].index.max())
    return min(set(panel["train_length"]) & set(panel["length"]), default=decisive), decisive


def _place(kind: tuple[str, str, str]) -> tuple:
    """Protocols in the order of their tasks, each before its variants, such as those on other data."""
    known = [protocol for task in tasks.all().values() for protocol in task.protocols]
    return known.index(kind[0]) if kind[0] in known else len(known), len(json.loads(kind[1])), kind


def _means(rows: pd.DataFrame, results: Results) -> pd.DataFrame | None:
    """The means over seeds by encoding and length, and the `sample` of each; None where nothing was measured
    by this protocol.

    Args:
        rows: of one protocol with its parameters on one set of targets.
    """
    measured = rows[rows["note"].isna()]
    measure = _main_measure(measured)
    if measure is None:
        return None
    own = rows[(rows["measure"] == measure) | rows["note"].notna()]
    cells = {(row.encoding, row.run, row.length): row for row in own.itertuples()}
    unread: dict[tuple[str, str], str] = {}
    if "window" in json.loads(rows["parameters"].iloc[0]):
        # The note of a window that could not be read stands for all its bins.
        notes = rows.groupby(["encoding", "run"])["note"]
        unread = notes.first()[notes.count() == notes.size()].to_dict()
    counted = next((one for one in COUNTS if measured[one].notna().any()), "")
    trained = rows.groupby("encoding")["train_length"].min()
    every = results.rows[results.rows["encoding"].isin(trained.index)].drop_duplicates(["encoding", "run"])
    made = []
    for label, runs in every.groupby("encoding", sort=False):
        for length in sorted(measured["length"].unique()):
            finite, why = [], {}
            for run in runs.itertuples():
                cell = cells.get((label, run.run, length))
                if reason := _why(cell, unread.get((label, run.run), NOT_EVALUATED)):
                    why[run.seed] = reason
                else:
                    finite.append(cell)
            # A mean without a seed that diverged would look like a success.
            kept = [] if NOT_FINITE in why.values() else finite
            values = pd.Series([cell.value for cell in kept], dtype=float)
            made.append({
                "encoding": label, "length": length, "train_length": trained[label],
                "mean": values.mean(), "sd": values.std(), "seeds": len(runs), "measured": len(finite),
                "count": max((getattr(cell, counted, math.nan) for cell in kept), default=math.nan),
                "note": _note(why, not finite), "values": {cell.seed: cell.value for cell in finite},
                "runs": " ".join(runs["run"]),
                "sample": make_sample(measure, kept, results.units) if kept else None,
            })  # fmt: skip
    key = ["encoding", "length"]
    others = rows.pivot_table("value", key, "measure", sort=False)
    table = pd.DataFrame(made).astype({"note": object, "sample": object}).set_index(key)
    table = table.join(own.groupby(key)[["tokens_per_second", "peak_memory_mb"]].mean())
    table = table.join(others[[one for one in MEASURES if one in others and one != measure]])
    about = rows.iloc[0]
    return table.reset_index().assign(
        **about[[*ABOUT]], measure=measure, lower_is_better=not about["higher_is_better"], counted=counted
    )


def _why(cell: Any, absent: str) -> str:
    """Why a run has no value at a length; empty where it has one."""
    if cell is None:
        return absent
    return cell.note if isinstance(cell.note, str) else NOT_FINITE if math.isnan(cell.value) else ""


def _main_measure(measured: pd.DataFrame) -> str | None:
    """The measure of a panel; None where its rows have none in common."""
    everywhere = len(measured.drop_duplicates(["encoding", "run", "length"]))
    counts = measured.groupby("measure", sort=False)["value"].agg(["size", "count"])
    names = [one for one in (*MAIN, *counts.index) if one in counts.index]
    known = [name for name in names if counts.loc[name, "size"] == everywhere]
    finite = (name for name in known if counts.loc[name, "count"])
    return next(finite, known[0] if known else None)


def _note(why: Mapping[int, str], is_all: bool) -> str | None:
    """Why seeds have no value, with the seeds where others have one or another reason."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for seed, reason in why.items():
        reasons[reason].append(str(seed))
    if len(reasons) == 1 and is_all:
        return next(iter(reasons))
    parts = (f"seed{'s' * (len(own) > 1)} {', '.join(own)}: {reason}" for reason, own in reasons.items())
    return "; ".join(parts) or None


def _signed(panel: pd.DataFrame) -> pd.DataFrame:
    """Means by encoding and length, in the order of the panel; a lower one is better."""
    sign = 1 if panel["lower_is_better"].iloc[0] else -1
    return sign * panel.pivot_table("mean", "encoding", "length", "first", dropna=False, sort=False)


def _order(panel: pd.DataFrame) -> list[str]:
    """Labels by their means at the decisive length, then from the longest length on."""
    _, decisive = lengths_of(panel)
    means = _signed(panel).fillna(math.inf)
    keys = means[[decisive, *sorted(means.columns, reverse=True)]]
    return sorted(keys.index, key=lambda label: (keys.loc[label].tolist(), label))


def samples(results: Results, protocol: str) -> dict[str, dict[int, Sample]]:
    """The samples of the main measure of a protocol, by encoding and length."""
    rows = results.rows[results.rows["protocol"] == protocol]
    return samples_of(_means(rows, results))


def _compared(panel: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Intervals, differences and ranks of the samples of a panel, by encoding and length."""
    samples = samples_of(panel)
    is_loss = bool(panel["lower_is_better"].iloc[0])
    sign = 1 if is_loss else -1
    every = [one for own in samples.values() for one in own.values()]
    # A protocol that scored one document takes the documents from the intervals of no other.
    basis = basis_of(every)
    interval = basis.named("s or ".join(dict.fromkeys(one.unit for one in every)) or "document")
    several = panel.groupby("length")["sample"].count().max() > 1
    labels, rows = panel["encoding"].unique(), []
    effective = {label: effective_length(curve) for label, curve in panel.groupby("encoding")}
    trained, _ = lengths_of(panel)
    ranking = of_samples(beyond(samples, trained), basis, is_loss)
    for length in panel["length"].unique():
        there = [label for label in labels if length in samples[label]]
        there.sort(key=lambda label: sign * samples[label][length].mean)
        pairs: dict[tuple[str, str], Estimate] = {}
        for one, other in combinations(there, 2):
            pairs[one, other] = difference(samples[one][length], samples[other][length], basis)
            pairs[other, one] = -pairs[one, other]
        unranked = "; ".join(dict.fromkeys(one.why for one in pairs.values() if one.sign is None))
        worse = {pair for pair, one in pairs.items() if one.sign == sign}
        ranked = ranks(there, worse) if pairs and not unranked else {}
        for label in labels:
            own, changed = samples[label], Estimate()
            if length in own and trained in own:
                changed = difference(own[length], own[trained], basis)
            estimates = {
                "": own[length].estimate(basis) if length in own else Estimate(),
                "difference": pairs.get((label, reference), Estimate()),
                "behind": pairs.get((label, next(iter(there), "")), Estimate()),
                "change": changed,
                "beyond": ranking.values.get(label, Estimate()),
                "beyond_behind": ranking.behind.get(label, Estimate()),
            }
            low, high = ranking.intervals.get(label, (None, None))
            longest, at_least = effective[label]
            rows.append({
                "encoding": label, "length": length,
                "interval": None if math.isnan(estimates[""].low) else interval,
                "rank": ranked.get(label), "unranked": unranked, "reference": reference if several else None,
                "no_interval": estimates["difference"].why, "rank_from": low, "rank_to": high,
                "effective_length": longest, "effective_length_at_least": at_least,
                **{name: one.value for name, one in estimates.items() if name},
                **{f"{name}_{end}".strip("_"): getattr(one, end)
                   for name, one in estimates.items() for end in ("low", "high")},
            })  # fmt: skip
    return pd.DataFrame(rows, dtype=object).astype({"length": int})


def estimate(row: Mapping[str, Any], name: str = "mean") -> Estimate:
    """A number of a row of the summary with its interval."""
    start = "" if name == "mean" else f"{name}_"
    return Estimate(row[name], row[f"{start}low"], row[f"{start}high"])


def samples_of(panel: pd.DataFrame) -> dict[str, dict[int, Sample]]:
    """The samples of each encoding by length, where it has values."""
    return {
        label: {row.length: row.sample for row in curve.itertuples() if row.sample is not None}
        for label, curve in panel.groupby("encoding", sort=False)
    }


def beyond(samples: Mapping[str, Mapping[int, Sample]], trained: int) -> dict[str, Sample | None]:
    """The samples of the means over the lengths above the trained one; None without a value at one of them.
    Empty where there are no such lengths."""
    lengths = sorted({length for own in samples.values() for length in own if length > trained})
    return {
        label: mean_over_lengths([own[at] for at in lengths]) if own.keys() >= {*lengths} else None
        for label, own in (samples if lengths else {}).items()
    }


def effective_length(curve: pd.DataFrame) -> tuple[int | None, bool]:
    """The largest tested length up to which every tested length, from the trained one on, keeps its score.

    An accuracy keeps `SHARE_KEPT` of the one at the trained length. A loss exceeds the one at the trained
    length by at most `NATS_LOST`, and counts under `fixed_targets` only: in other protocols longer windows
    lower the loss of any model.

    Args:
        curve: the rows of an encoding in a panel.

    Returns: the length, None where it is not defined; and whether it is only a lower bound, because the score
        is kept at every tested length.
    """
    first = curve.iloc[0]
    is_rate = first["measure"] == "accuracy"
    if not is_rate and (first["protocol"] != "fixed_targets" or "loss_nats" not in curve):
        return None, False
    scores = curve.set_index("length")["mean" if is_rate else "loss_nats"].sort_index()
    scores = scores[scores.index >= first["train_length"]]
    base = scores.get(first["train_length"], math.nan)
    if math.isnan(base) or (is_rate and base < LEARNED):
        return None, False
    kept = scores >= SHARE_KEPT * base if is_rate else scores <= base + NATS_LOST
    return int(kept.index[kept.cumprod().astype(bool)].max()), bool(kept.all())


def only_rivals(results: Results) -> tuple[Results, list[tuple[str, str, str]]]:
    """Results without measurements of a single encoding where others have its protocol in another way.

    Returns: the results; protocol, parameters and encoding of the others.
    """
    rows = results.rows
    count = rows[rows["note"].isna()].groupby(KIND)["encoding"].nunique().rename("count").reset_index()
    rivals = rows["protocol"].isin(count.loc[count["count"] > 1, "protocol"])
    dropped = rivals & (rows[KIND].merge(count, "left", KIND)["count"] < 2).to_numpy()
    out = rows.loc[dropped & rows["note"].isna(), ["protocol", "parameters", "encoding"]].drop_duplicates()
    return replace(results, rows=rows[~dropped]), [*out.itertuples(index=False, name=None)]


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted({*names}))


def costs(results: Results, table: pd.DataFrame) -> pd.DataFrame:
    """The costs of each encoding, means over its runs, indexed by label: parameters, tokens per second and
    machine of the training, and of an evaluation by the first protocol at the longest length that all curves
    have."""
    first = table[table["panel"] == 0].set_index("encoding")
    able = first[first["tokens_per_second"].notna()]
    counts = able.groupby("length").size()
    length = counts.index[counts == able.index.nunique()].max() if len(able) else None
    evaluated = first.loc[first["length"] == length, ["tokens_per_second", "peak_memory_mb"]]
    timed = results.rows["protocol"].isin(first["protocol"]) & (results.rows["length"] == length)
    machines = results.rows[timed].fillna({"machine": UNKNOWN_MACHINE}).groupby("encoding")["machine"]
    machines = machines.agg(_names)
    paths, made = results.rows.groupby("encoding")["run"].unique(), {}
    for label in table["encoding"].unique():
        runs = [results.runs[path] for path in paths[label]]
        counts = [run.card.get("parameters", {}) for run in runs]
        made[label] = {
            "added_parameters": max(one.get("positional", 0) for one in counts),
            "parameters": max(one.get("total", 0) for one in counts),
            "training_tokens_per_second": pd.Series([run.speed for run in runs], dtype=float).mean(),
            "training_machine": _names(one.card.get("machine", UNKNOWN_MACHINE) for one in runs),
            "evaluation_machine": machines.get(label),
            "evaluation_length": length,
        }
    evaluated = evaluated.rename(columns={"tokens_per_second": "evaluation_tokens_per_second"})
    return pd.DataFrame.from_dict(made, orient="index").join(evaluated)
