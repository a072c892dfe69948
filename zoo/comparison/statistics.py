"""Statistics of results: means over seeds, intervals, paired differences and ranks, as one table."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from zoo.comparison.frame import COUNTS, KIND, MEASURES, Results
from zoo.comparison.paired import Difference, basis_of, difference, make_sample, ranks
from zoo.errors import InputError, hint
from zoo.evaluation.interval import UNKNOWN
from zoo.registry import tasks

if TYPE_CHECKING:
    import pandas as pd

NOT_FINITE, NOT_EVALUATED = "not finite", "not evaluated"
MAIN = ("accuracy", "bits_per_byte", "loss_nats")
"""The measure of a protocol: the first of these that all its rows have, else the first other one."""
ABOUT = ("protocol", "parameters", "targets", "axis", "explanation")
NUMBERS = (
    "mean", "sd", "low", "high", "rank", "difference", "difference_low", "difference_high", "behind",
    "behind_low", "behind_high", "effective_length", "count", "tokens_per_second", "peak_memory_mb",
    *MEASURES,
)  # fmt: skip
COLUMNS = (
    "panel", *ABOUT, "measure", "lower_is_better", "encoding", "length", "train_length", "mean", "sd", "low",
    "high", "interval", "rank", "reference", "difference", "difference_low", "difference_high", "no_interval",
    "behind", "behind_low", "behind_high", "unranked", "effective_length", "effective_length_at_least",
    "seeds", "measured", "counted", "count", "note", "values", "runs", "tokens_per_second", "peak_memory_mb",
    *MEASURES,
)  # fmt: skip
SHARE_KEPT = 0.85
"""Share of the accuracy at the trained length: the rule of NoLiMa (Modarressi et al. 2025,
arXiv:2502.05167)."""
LEARNED = 0.5
"""A task with a lower accuracy at the trained length is not learned, and has no effective length."""
NATS_LOST = 0.05
"""Per token, above the loss at the trained length."""


def summary(results: Results, reference: str | None = None) -> pd.DataFrame:
    """A row for each protocol with its parameters (`panel`), encoding and length, the best encoding first.

    `mean`, `sd` and `values` are over the seeds, `low` and `high` end the 95 % interval, of `interval`.
    `difference` is the mean less that of `reference`, `behind` the mean less that of the best at this length;
    both are paired, and `no_interval` says why there is no interval. `rank` is that of
    `zoo.comparison.paired.ranks`, and `unranked` says why there is none. `note` says why a value is missing.
    For the effective length see `effective_length`; it is the same at every length of a curve.

    Args:
        reference: a label; by default the best at the trained length of the first panel. A panel without it
            has its own best.

    Raises:
        InputError: no curve has that label.
    """
    import pandas as pd

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
    import pandas as pd

    measured = rows[rows["note"].isna()]
    measure = _main_measure(measured)
    if measure is None:
        return None
    seeds = _seeds(rows, measure, results.rows)
    counted = next((one for one in COUNTS if measured[one].notna().any()), "")
    seeds["count"] = seeds[counted] if counted else math.nan
    seeds.loc[seeds["why"].notna(), ["value", "count"]] = math.nan
    others = rows.pivot_table("value", ["encoding", "length"], "measure", sort=False)
    groups = seeds.groupby(["encoding", "length"], sort=False)
    table = groups.agg(
        train_length=("train_length", "min"), mean=("value", "mean"), sd=("value", "std"),
        seeds=("run", "size"), measured=("value", "count"), count=("count", "max"),
        tokens_per_second=("tokens_per_second", "mean"), peak_memory_mb=("peak_memory_mb", "mean"),
    )  # fmt: skip
    table["train_length"] = (
        rows.groupby("encoding")["train_length"].min()[table.index.get_level_values(0)].array
    )
    # A mean without a seed that diverged would look like a success.
    failed = groups["why"].agg(lambda why: (why == NOT_FINITE).any()).astype(bool)
    table.loc[failed, ["mean", "sd", "count"]] = math.nan
    cells, made = defaultdict(list), []
    for row in seeds.itertuples():
        cells[row.encoding, row.length].append(row)
    for key, mean in table["mean"].items():
        finite = [row for row in cells[key] if not isinstance(row.why, str)]
        made.append({
            "note": _note({row.seed: row.why for row in cells[key] if isinstance(row.why, str)}, not finite),
            "values": {row.seed: row.value for row in finite},
            "runs": " ".join(row.run for row in cells[key]),
            "sample": None if math.isnan(mean) else make_sample(measure, finite, results.units),
        })  # fmt: skip
    table = table.join(pd.DataFrame(made, table.index, dtype=object))
    table = table.join(others[[one for one in MEASURES if one in others and one != measure]])
    about = rows.iloc[0]
    return table.reset_index().assign(
        **about[[*ABOUT]], measure=measure, lower_is_better=not about["higher_is_better"], counted=counted
    )


def _seeds(rows: pd.DataFrame, measure: str, every: pd.DataFrame) -> pd.DataFrame:
    """A row for each run and length of a protocol, with its row of `measure` as `row`; `why` says why a run
    has no value."""
    import pandas as pd

    lengths = sorted(rows.loc[rows["note"].isna(), "length"].unique())
    runs = every.loc[every["encoding"].isin(rows["encoding"]), ["encoding", "run", "seed"]].drop_duplicates()
    grid = runs.merge(pd.DataFrame({"length": lengths}), how="cross")
    own = rows[(rows["measure"] == measure) | rows["note"].notna()].rename_axis("row").reset_index()
    grid = grid.merge(own.drop(columns="seed"), "left", ["encoding", "run", "length"])
    why = grid["note"].mask(grid["note"].isna() & grid["value"].isna(), NOT_FINITE)
    absent = grid["row"].isna()
    why[absent] = NOT_EVALUATED
    if "window" in json.loads(rows["parameters"].iloc[0]):
        # The note of a window that could not be read stands for all its bins.
        notes = rows.groupby(["encoding", "run"])["note"].agg(
            lambda note: note.iloc[0] if note.notna().all() else None
        )
        known = grid[["encoding", "run"]].merge(notes.reset_index(), "left", ["encoding", "run"])["note"]
        why[absent & known.notna()] = known
    return grid.assign(why=why)


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


def _compared(panel: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Intervals, differences and ranks of the samples of a panel, by encoding and length."""
    import pandas as pd

    samples = {(row.encoding, row.length): row.sample for row in panel.itertuples() if row.sample is not None}
    sign = 1 if panel["lower_is_better"].iloc[0] else -1
    # A protocol that scored one document takes the documents from the intervals of no other.
    basis = basis_of([*samples.values()])
    interval = basis.named("s or ".join(dict.fromkeys(one.unit for one in samples.values())) or "document")
    several = panel.groupby("length")["sample"].count().max() > 1
    labels, rows = panel["encoding"].unique(), []
    effective = {label: effective_length(curve) for label, curve in panel.groupby("encoding")}
    for length in panel["length"].unique():
        there = [label for label in labels if (label, length) in samples]
        there.sort(key=lambda label: sign * samples[label, length].mean)
        pairs: dict[tuple[str, str], Difference] = {}
        for one, other in combinations(there, 2):
            pairs[one, other] = difference(samples[one, length], samples[other, length], basis)
            pairs[other, one] = -pairs[one, other]
        unranked = "; ".join(dict.fromkeys(one.why for one in pairs.values() if one.sign is None))
        worse = {pair for pair, one in pairs.items() if one.sign == sign}
        ranked = ranks(there, worse) if pairs and not unranked else {}
        for label in labels:
            sample = samples.get((label, length))
            low, high = sample.interval(basis) if sample else UNKNOWN
            to_reference, behind = pairs.get((label, reference)), pairs.get((label, next(iter(there), "")))
            longest, at_least = effective[label]
            rows.append({
                "encoding": label, "length": length, "low": low, "high": high,
                "interval": interval if low is not None else None,
                "rank": ranked.get(label), "unranked": unranked, "reference": reference if several else None,
                **_columns("difference", to_reference), **_columns("behind", behind),
                "no_interval": to_reference.why if to_reference else "",
                "effective_length": longest, "effective_length_at_least": at_least,
            })  # fmt: skip
    return pd.DataFrame(rows, dtype=object).astype({"length": int})


def _columns(name: str, one: Difference | None) -> dict[str, float | None]:
    ends = (one.value, one.low, one.high) if one else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


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
    counts = rows[rows["note"].isna()].groupby(KIND)["encoding"].nunique()
    several = {kind[0] for kind, count in counts.items() if count > 1}
    alone = {kind for kind, count in counts.items() if count < 2 and kind[0] in several}
    dropped = rows[KIND].apply(tuple, axis=1).isin(alone) if len(rows) else []
    out = rows[dropped]
    kinds = out.loc[out["note"].isna(), ["protocol", "parameters", "encoding"]].drop_duplicates()
    return replace(results, rows=rows[~dropped]), [*kinds.itertuples(index=False, name=None)]


def costs(results: Results, table: pd.DataFrame) -> pd.DataFrame:
    """The costs of each encoding, means over its runs, indexed by label: parameters and tokens per second of
    the training, and of an evaluation by the first protocol at the longest length that all curves have."""
    import pandas as pd

    first = table[table["panel"] == 0]
    speed = first.pivot(index="length", columns="encoding", values="tokens_per_second")
    common = speed.loc[:, speed.notna().any()].dropna()
    length = int(common.index.max()) if len(common) and len(common.columns) else None
    made = {}
    for label in table["encoding"].unique():
        paths = results.rows.loc[results.rows["encoding"] == label, "run"].unique()
        speeds = [speed for path in paths if (speed := results.runs[path].speed) is not None]
        counts = [results.runs[path].card.get("parameters", {}) for path in paths]
        at = first[(first["encoding"] == label) & (first["length"] == length)]
        made[label] = {
            "added_parameters": max(one.get("positional", 0) for one in counts),
            "parameters": max(one.get("total", 0) for one in counts),
            "training_tokens_per_second": statistics.fmean(speeds) if speeds else None,
            "evaluation_tokens_per_second": at["tokens_per_second"].squeeze() if len(at) else None,
            "evaluation_length": length,
            "peak_memory_mb": at["peak_memory_mb"].squeeze() if len(at) else None,
        }
    return pd.DataFrame.from_dict(made, orient="index")
