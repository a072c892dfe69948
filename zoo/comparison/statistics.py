"""Statistics of results: means over seeds, intervals, paired differences and ranks, as one table."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from zoo.comparison.effective_length import effective_length
from zoo.comparison.frame import COUNTS, MEASURES, Results, table_of
from zoo.comparison.paired import Difference, Sample, basis_of, difference, make_sample, ranks
from zoo.errors import InputError, hint
from zoo.evaluation.interval import UNKNOWN
from zoo.registry import tasks

if TYPE_CHECKING:
    import pandas as pd

NOT_FINITE, NOT_EVALUATED = "not finite", "not evaluated"
MAIN = ("accuracy", "bits_per_byte", "loss_nats")
"""The measure of a protocol: the first of these that all its rows have, else the first other one."""
COLUMNS = (
    "panel", "protocol", "parameters", "targets", "axis", "explanation", "measure", "lower_is_better",
    "encoding", "length", "train_length", "mean", "sd", "low", "high", "interval", "rank",
    "reference", "difference", "difference_low", "difference_high", "no_interval", "behind", "behind_low",
    "behind_high", "unranked", "effective_length", "effective_length_at_least", "seeds",
    "measured", "counted", "count", "note", "values", "runs",
    "tokens_per_second", "peak_memory_mb", *MEASURES,
)  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """One protocol with its parameters on one set of targets: a curve's columns and sample at each length."""

    about: dict[str, Any]
    lengths: list[int]
    labels: list[str]
    cells: dict[tuple[str, int], dict[str, Any]]
    samples: dict[tuple[str, int], Sample]

    def mean(self, label: str, length: int) -> float | None:
        return self.cells[label, length]["mean"]

    @property
    def sign(self) -> int:
        return 1 if self.about["lower_is_better"] else -1

    @property
    def decisive_length(self) -> int:
        counts = {n: sum(self.mean(one, n) is not None for one in self.labels) for n in self.lengths}
        return decisive_length(counts, len(self.labels))

    def best_at(self, length: int) -> str:
        """The best curve at a length; of equals the first."""
        there = [one for one in self.labels if self.mean(one, length) is not None] or self.labels
        return min(there, key=lambda label: self.sign * (self.mean(label, length) or 0.0))


def decisive_length(counts: Mapping[int, int], curves: int) -> int:
    """The longest length at which more than half of the curves have a value, else as many as possible: an
    encoding that ends at the trained length does not decide the order.

    Args:
        counts: the number of curves with a value, by length.
    """
    most = [length for length, count in counts.items() if 2 * count > curves]
    return max(most) if most else max(counts, key=lambda length: (counts[length], length))


def summary(results: Results, reference: str | None = None) -> pd.DataFrame:
    """A row for each protocol with its parameters (`panel`), encoding and length, the best encoding first.

    `mean`, `sd` and `values` are over the seeds, `low` and `high` end the 95 % interval, of `interval`.
    `difference` is the mean less that of `reference`, `behind` the mean less that of the best at this length;
    both are paired, and `no_interval` says why there is no interval. `rank` is that of
    `zoo.comparison.paired.ranks`, and `unranked` says why there is none. `note` says why a value is missing.
    For the effective length see `zoo.comparison.effective_length`; it is the same at every length of a curve.

    Args:
        reference: a label; by default the best at the trained length of the first panel. A panel without it
            has its own best.

    Raises:
        InputError: no curve has that label.
    """

    kinds = {kind: rows for kind, rows in results.rows.groupby(["protocol", "parameters", "targets"])}
    made = [_panel(kinds[kind], results) for kind in sorted(kinds, key=_place)]
    panels = [one for one in made if one is not None]
    panels = _ordered([one for one in panels if one.samples] or panels)
    labels = list(dict.fromkeys(label for one in panels for label in one.labels))
    if reference is not None and reference not in labels:
        raise InputError(f"--reference: no curve is called {reference!r}; {hint(reference, labels)}")
    chosen = reference
    rows: list[dict[str, Any]] = []
    for number, panel in enumerate(panels):
        trained = {cell["train_length"] for cell in panel.cells.values()} & set(panel.lengths)
        own = panel.best_at(min(trained, default=panel.decisive_length))
        chosen = chosen or own
        rows += _compared(panel, chosen if chosen in panel.labels else own, number)
    table = table_of(rows, COLUMNS)
    numbers = [name for name in COLUMNS if name in MEASURES or name in _NUMBERS]
    return table.astype(dict.fromkeys(numbers, float))


_NUMBERS = (
    "mean", "sd", "low", "high", "rank", "difference", "difference_low", "difference_high", "behind",
    "behind_low", "behind_high", "effective_length", "count", "tokens_per_second", "peak_memory_mb",
)  # fmt: skip


def _place(kind: tuple[str, str, str]) -> tuple:
    """Protocols in the order of their tasks, each before its variants, such as those on other data."""
    known = [protocol for task in tasks.all().values() for protocol in task.protocols]
    return known.index(kind[0]) if kind[0] in known else len(known), len(json.loads(kind[1])), kind


def _panel(rows: pd.DataFrame, results: Results) -> Panel | None:
    """The panel of the rows of one protocol; None where nothing was measured by it."""
    measured = rows[rows["note"].isna()]
    measure = _main_measure(measured)
    if measure is None:
        return None
    at: dict[tuple[str, str, int], dict[str, Any]] = defaultdict(dict)
    for row in rows.itertuples():
        at[row.encoding, row.run, row.length][row.measure] = row
    counted = next((one for one in COUNTS if measured[one].notna().any()), "")
    lengths, labels = sorted(measured["length"].unique().tolist()), rows["encoding"].unique().tolist()
    cells, samples = {}, {}
    for label in labels:
        own = results.rows[results.rows["encoding"] == label]
        runs = dict(zip(own["run"], own["seed"], strict=True))
        trained = int(rows.loc[rows["encoding"] == label, "train_length"].min())
        unread = {run: note for run in runs if (note := _note_of_window(label, run, at)) is not None}
        for length in lengths:
            there = {run: at.get((label, run, length)) for run in runs}
            why = {run: _why(found, measure, unread.get(run)) for run, found in there.items()}
            finite = [there[run][measure] for run in runs if why[run] is None]
            failed = NOT_FINITE in why.values()
            values = [row.value for row in finite]
            counts = [getattr(row, counted) for row in finite] if counted else []
            first = [next(iter(found.values())) for found in there.values() if found]
            others = {
                name: _mean(found[name].value for found in there.values() if found and name in found)
                for name in MEASURES
                if name != measure
            }
            cells[label, length] = {
                "encoding": label,
                "length": length,
                "train_length": trained,
                # A mean without a seed that diverged would look like a success.
                "mean": None if failed else _mean(values),
                "sd": None if failed or len(values) < 2 else statistics.stdev(values),
                "seeds": len(runs),
                "measured": len(values),
                "counted": counted,
                "count": None if failed else max(counts, default=None),
                "note": _note([(runs[run], reason) for run, reason in why.items()]),
                "values": {row.seed: row.value for row in finite},
                "runs": " ".join(runs),
                "tokens_per_second": _mean(row.tokens_per_second for row in first),
                "peak_memory_mb": _mean(row.peak_memory_mb for row in first),
                **others,
            }
            if finite and not failed:
                samples[label, length] = make_sample(measure, finite, results.units)
    columns = ("protocol", "parameters", "targets", "axis", "explanation")
    about = {name: rows.iloc[0][name] for name in columns} | {
        "measure": measure,
        "lower_is_better": not rows.iloc[0]["higher_is_better"],
    }
    return Panel(about, lengths, labels, cells, samples)


def _main_measure(measured: pd.DataFrame) -> str | None:
    """The measure of a panel; None where its rows have none in common."""
    keys = ["encoding", "run", "length"]
    everywhere = len(measured.drop_duplicates(keys))
    counts = measured.groupby("measure", sort=False)["value"].agg(["size", "count"])
    names = [
        name for name in (*MAIN, *(one for one in counts.index if one not in MAIN)) if name in counts.index
    ]
    known = [name for name in names if counts.loc[name, "size"] == everywhere]
    finite = (name for name in known if counts.loc[name, "count"])
    return next(finite, known[0] if known else None)


def _note_of_window(label: str, run: str, at: Mapping[tuple[str, str, int], dict[str, Any]]) -> str | None:
    """The note of a window that could not be read, which stands for all its bins."""
    rows = [row for key, found in at.items() if key[:2] == (label, run) for row in found.values()]
    windows = rows and all(
        isinstance(row.note, str) and "window" in json.loads(row.parameters) for row in rows
    )
    return rows[0].note if windows else None


def _why(found: dict[str, Any] | None, measure: str, window: str | None) -> str | None:
    """Why a run has no value; None where it has one."""
    if not found:
        return window or NOT_EVALUATED
    row = next(iter(found.values()))
    if isinstance(row.note, str):
        return row.note
    return None if math.isfinite(found[measure].value) else NOT_FINITE


def _note(reasons: Sequence[tuple[int, str | None]]) -> str | None:
    known = dict.fromkeys(reason for _, reason in reasons if reason is not None)
    if len(known) == 1 and all(reason is not None for _, reason in reasons):
        return next(iter(known))
    parts = []
    for reason in known:
        seeds = [str(seed) for seed, own in reasons if own == reason]
        parts.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}: {reason}")
    return "; ".join(parts) or None


def _ordered(panels: Sequence[Panel]) -> list[Panel]:
    """Panels with the best curves first: at the decisive length of the first panel that has them, then from
    the longest length on."""
    order: dict[str, int] = {}
    for panel in panels:
        lengths = [panel.decisive_length, *reversed(panel.lengths)]
        keys = {}
        for label in panel.labels:
            means = [panel.mean(label, length) for length in lengths]
            keys[label] = [(mean is None, panel.sign * (mean or 0.0)) for mean in means], label
        for label in sorted(keys, key=keys.__getitem__):
            order.setdefault(label, len(order))
    return [replace(panel, labels=sorted(panel.labels, key=order.__getitem__)) for panel in panels]


def _compared(panel: Panel, reference: str, number: int) -> list[dict[str, Any]]:
    """The rows of a panel, with intervals, differences and ranks."""
    # A protocol that scored one document takes the documents from the intervals of no other.
    basis = basis_of(list(panel.samples.values()))
    units = dict.fromkeys(sample.unit for sample in panel.samples.values())
    interval = basis.named("s or ".join(units) or "document")
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    effective = {label: _effective_length(panel, label) for label in panel.labels}
    any_pairs = any(sum(one == length for _, one in panel.samples) > 1 for length in panel.lengths)
    for length in panel.lengths:
        there = [label for label in panel.labels if (label, length) in panel.samples]
        there.sort(key=lambda label: panel.sign * panel.samples[label, length].mean)
        pairs: dict[tuple[str, str], Difference] = {}
        for one, other in combinations(there, 2):
            pairs[one, other] = difference(panel.samples[one, length], panel.samples[other, length], basis)
            pairs[other, one] = -pairs[one, other]
        unranked = "; ".join(dict.fromkeys(one.why for one in pairs.values() if one.sign is None))
        ranked = {}
        if pairs and not unranked:
            ranked = ranks(there, {pair for pair, one in pairs.items() if one.sign == panel.sign})
        for label in panel.labels:
            sample = panel.samples.get((label, length))
            low, high = sample.interval(basis) if sample else UNKNOWN
            to_reference, behind = pairs.get((label, reference)), pairs.get((label, next(iter(there), "")))
            rows[label, length] = {
                "panel": number, **panel.about, **panel.cells[label, length],
                "low": low, "high": high, "interval": interval if low is not None else None,
                "rank": ranked.get(label), "unranked": unranked,
                "reference": reference if any_pairs else None,
                **_columns("difference", to_reference), **_columns("behind", behind),
                "no_interval": to_reference.why if to_reference else "",
                **dict(zip(("effective_length", "effective_length_at_least"), effective[label], strict=True)),
            }  # fmt: skip
    return [rows[label, length] for label in panel.labels for length in panel.lengths]


def _effective_length(panel: Panel, label: str) -> tuple[int | None, bool]:
    cells = {length: panel.cells[label, length] for length in panel.lengths}
    trained = next(iter(cells.values()))["train_length"]
    return effective_length(panel.about["protocol"], panel.about["measure"], trained, cells)


def _columns(name: str, one: Difference | None) -> dict[str, float | None]:
    ends = (one.value, one.low, one.high) if one else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def only_rivals(results: Results) -> tuple[Results, list[tuple[str, str, str]]]:
    """Results without measurements of a single encoding where others have its protocol in another way.

    Returns: the results; protocol, parameters and encoding of the others.
    """
    rows = results.rows
    keys = ["protocol", "parameters", "targets"]
    counts = rows[rows["note"].isna()].groupby(keys)["encoding"].nunique()
    several = {kind[0] for kind, count in counts.items() if count > 1}
    alone = {kind for kind, count in counts.items() if count < 2 and kind[0] in several}
    dropped = rows[keys].apply(tuple, axis=1).isin(alone) if len(rows) else []
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
        runs = [
            results.runs[run] for run in results.rows.loc[results.rows["encoding"] == label, "run"].unique()
        ]
        at = first[(first["encoding"] == label) & (first["length"] == length)]
        counts = [run.card.get("parameters", {}) for run in runs]
        made[label] = {
            "added_parameters": max(one.get("positional", 0) for one in counts),
            "parameters": max(one.get("total", 0) for one in counts),
            "training_tokens_per_second": _mean(run.speed for run in runs),
            "evaluation_tokens_per_second": at["tokens_per_second"].squeeze() if len(at) else None,
            "evaluation_length": length,
            "peak_memory_mb": at["peak_memory_mb"].squeeze() if len(at) else None,
        }
    return pd.DataFrame.from_dict(made, orient="index")


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return statistics.fmean(known) if known else None
