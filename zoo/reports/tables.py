"""The tables of a comparison: what stands in a cell, who wins a column, and what is explained below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zoo.evaluation.curves import protocol_text
from zoo.evaluation.exports import number, raised
from zoo.reports.report import Comparison, Cost, Curve, Difference, Panel

COLUMNS = 10
"""Lengths in a table; of more, every second or third is shown, counted from the longest."""
DASH = "–"


@dataclass(frozen=True)
class Cell:
    """A cell of a table; `best` is better than all others of its column beyond the intervals. `spread` may be
    left out where it is too wide."""

    text: str
    best: bool = False
    spread: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """A table of cells, what is said above it, and the lines that explain it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    below: tuple[str, ...]


def tables(comparison: Comparison) -> list[Table]:
    """For each panel a table of its values and one of differences and ranks, and one of the costs."""
    made = [
        table
        for panel in comparison.panels
        for table in (_of_panel(panel), differences_table(panel))
        if table is not None
    ]
    return [*made, _of_costs(comparison.costs, comparison.panels)]


def order_text(comparison: Comparison) -> str:
    """How the encodings are ordered, for the reader, and which of them are tied."""
    panel = comparison.panels[0]
    length = panel.decisive
    order = f"in the order of {words(panel.measure)} at {length} tokens"
    there = [curve.label for curve in panel.curves if curve.mean[panel.lengths.index(length)] is not None]
    if len(there) < 2:
        return f"Encodings {order}; fewer than two have a value there."
    why = panel.why_unranked(length)
    if why:
        return (
            f"No ranking: there is no interval at {length} tokens ({why}). Encodings stand {order}, no more."
        )
    first = [label for label in there if panel.rank(label, length) == 1]
    if len(first) == 1:
        return (
            f"Encodings {order}; {in_sentence(first[0])} is ahead of all others there, beyond the intervals."
        )
    every = "all" if len(first) == len(there) else ", ".join(map(in_sentence, first))
    return (
        f"Encodings {order}, where {every} are tied: the interval of their difference includes zero, and "
        "which of them stands first means nothing."
    )


def in_sentence(label: str) -> str:
    """A curve's name within a sentence, where "none is ahead" would be misread."""
    return f'"{label}"' if label.startswith("none") else label


def _of_panel(panel: Panel) -> Table:
    lengths = shown_lengths(panel)
    notes: dict[str, int] = {}
    rows = []
    for curve in panel.curves:
        cells = [Cell(curve.label + trained_text(panel, curve))]
        cells += [_cell(panel, curve, panel.lengths.index(length), notes) for length in lengths]
        rows.append(tuple(cells))
    below = [
        f"{words(panel.measure)}, {'lower' if panel.lower_is_better else 'higher'} is better",
        *_spread(panel),
    ]
    if len(lengths) < len(panel.lengths):
        below.append(f"{len(lengths)} of {len(panel.lengths)} lengths are shown; compare.csv has all")
    footnotes = [f"{raised(place)} {note}" for note, place in notes.items()]
    protocol = protocol_text(panel.protocol, panel.parameters)
    return Table(
        f"{protocol}: {words(panel.measure)} by {against(panel)} in tokens",
        ("encoding", *_marked(panel, lengths)),
        tuple(rows),
        ("; ".join(below), *footnotes),
    )


def trained_text(panel: Panel, curve: Curve) -> str:
    """What stands beside a curve's name where curves of other trained lengths are in its panel."""
    return f", trained at {curve.train_length}" if len(panel.train_lengths) > 1 else ""


def against(panel: Panel) -> str:
    """What the values stand against."""
    # The bins of one window are no lengths of sequences.
    return "context" if "window" in panel.parameters else "length"


def shown_lengths(panel: Panel) -> tuple[int, ...]:
    """The lengths that a table has room for: the longest, the trained one, and others evenly between."""
    step = math.ceil(len(panel.lengths) / COLUMNS)
    kept = {*panel.lengths[::-1][::step], *panel.train_lengths}
    return tuple(length for length in panel.lengths if length in kept)


def differences_table(panel: Panel) -> Table | None:
    """Of each curve the difference to the reference at each length, and ranks; None of a single curve."""
    if not panel.pairs:
        return None
    lengths, ranked_at = shown_lengths(panel), tuple(dict.fromkeys((panel.trained, panel.decisive)))
    notes: dict[str, int] = {}
    rows = []
    for curve in panel.curves:
        cells = [Cell(curve.label + trained_text(panel, curve))]
        cells += [_difference_cell(panel, curve, length, notes) for length in lengths]
        cells += [Cell(rank_text(panel, curve.label, length)) for length in ranked_at]
        rows.append(tuple(cells))
    sign = "below" if panel.lower_is_better else "above"
    below = [f"{sign} zero is better than {in_sentence(panel.reference)}"]
    if any(one.sign is not None for one in panel.pairs.values()):
        below.append(
            f"in brackets the {panel.interval} of the paired difference, tied where it includes zero"
        )
    below.append("rank: 1 + how many are better beyond the interval of their own difference, = where equal")
    return Table(
        f"{protocol_text(panel.protocol, panel.parameters)}: difference to {panel.reference}",
        ("encoding", *_marked(panel, lengths), *(f"rank at {length}" for length in ranked_at)),
        tuple(rows),
        ("; ".join(below), *(f"{raised(place)} {note}" for note, place in notes.items())),
    )


def _difference_cell(panel: Panel, curve: Curve, length: int, notes: dict[str, int]) -> Cell:
    if curve.label == panel.reference:
        return Cell("reference")
    one = panel.between(length, curve.label, panel.reference)
    if one is None:
        return Cell(DASH)
    if one.low is None or one.high is None:
        why = f"no interval: {one.why}"
        return Cell(signed(one.value), mark=raised(notes.setdefault(why, len(notes) + 1)))
    tied = " tied" if one.sign == 0 else ""
    return Cell(signed(one.value), spread=difference_text(one).removeprefix(signed(one.value)), mark=tied)


def difference_text(one: Difference) -> str:
    """`+0.083 (+0.071 to +0.095)`; without an interval, the difference alone."""
    ends = "" if one.sign is None else f" ({signed(one.low)} to {signed(one.high)})"
    return f"{signed(one.value)}{ends}"


def rank_text(panel: Panel, label: str, length: int) -> str:
    """The rank of a curve, as 1, 1, 3; a dash where it has none."""
    rank = panel.rank(label, length)
    if rank is None:
        return DASH
    return f"{rank}{'=' * (sum(panel.rank(one.label, length) == rank for one in panel.curves) > 1)}"


def _marked(panel: Panel, lengths: Sequence[int]) -> list[str]:
    return [f"{one} (trained)" if panel.train_lengths == (one,) else str(one) for one in lengths]


def averaged_text(panel: Panel) -> str:
    """What is said where seeds are averaged and the interval is not over them."""
    few = ", ".join(in_sentence(curve.label) for curve in panel.curves if curve.seeds == 1)
    return (
        f"; seeds are averaged and the interval is not over them, since {few} has one"
        if panel.averaged
        else ""
    )


def spread_text(panel: Panel) -> str:
    """What the numbers beside the values are, of the panel's one kind, or why there are none."""
    if any(low is not None for curve in panel.curves for low in curve.low):
        return f"(low–high): {panel.interval}{averaged_text(panel)}"
    reasons = "; ".join(dict.fromkeys(one.why for one in panel.pairs.values() if one.why))
    return f"no interval{f': {reasons}' if reasons else ''}"


def _spread(panel: Panel) -> list[str]:
    """What stands behind the values."""
    seeds = sorted({curve.seeds for curve in panel.curves})
    return [spread_text(panel), f"seeds: {'–'.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))}"]


def _cell(panel: Panel, curve: Curve, index: int, notes: dict[str, int]) -> Cell:
    note = curve.notes.get(panel.lengths[index])
    mark = raised(notes.setdefault(note, len(notes) + 1)) if note else ""
    value, beside = curve.mean[index], spread(curve, index)
    if value is None:
        return Cell(DASH, mark=mark)
    if beside:
        beside = f" ({beside})"
    return Cell(number(value), panel.winner(panel.lengths[index]) == curve.label, beside, mark)


def spread(curve: Curve, index: int) -> str:
    """What stands beside a mean: its interval, of the kind that all curves of the panel have."""
    low, high = curve.low[index], curve.high[index]
    return f"{number(low)}–{number(high)}" if low is not None and high is not None else ""


def small(sd: float) -> str:
    """A standard deviation as a table has it."""
    # A spread that is not zero never reads as zero.
    return f"{sd:.3f}" if sd == 0 or sd >= 0.0005 else f"{sd:.0e}"


def signed(difference: float) -> str:
    """A difference as a table has it: with its sign, and one that is not zero never reads as zero."""
    if difference == 0:
        return "0.000"
    size = abs(difference)
    return f"{'+' if difference > 0 else '-'}{number(size) if size >= 0.0005 else f'{size:.0e}'}"


def words(measure: str) -> str:
    """A measure's name as a reader has it."""
    return {"loss_nats": "loss in nats"}.get(measure, measure.replace("_", " "))


def _of_costs(costs: Sequence[Cost], panels: Sequence[Panel]) -> Table:
    length = costs[0].evaluation_length
    at = f" at {length}" if length is not None else ""
    rows = [
        tuple(map(Cell, (
            cost.label, f"{cost.added_parameters:,}", f"{cost.parameters:,}",
            _whole(cost.training_tokens_per_second), _whole(cost.evaluation_tokens_per_second),
            _whole(cost.peak_memory_mb),
        )))
        for cost in costs
    ]  # fmt: skip
    kind = protocol_text(panels[0].protocol, panels[0].parameters)
    below = f"evaluation by {kind}, at the longest length that every encoding can read; " if length else ""
    return Table(
        "Costs",
        ("encoding", "added parameters", "parameters", "training tokens/s", f"evaluation tokens/s{at}",
         f"peak memory{at} (MiB)"),
        tuple(rows),
        (f"{below}tokens/s compare where the runs had the same machine to themselves, which no card tells",),
    )  # fmt: skip


def _whole(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}"
