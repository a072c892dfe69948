"""The tables of a comparison: what stands in a cell, what is the best, and what is explained below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zoo.comparison.comparison import Comparison, Cost, Curve, Panel
from zoo.evaluation.curves import protocol_text
from zoo.evaluation.exports import number, raised

COLUMNS = 10
"""Lengths in a table; of more, every second or third is shown, counted from the longest."""
DASH = "–"


@dataclass(frozen=True)
class Cell:
    """A cell of a table; the best of its column stands out. `spread` may be left out where it is too wide."""

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
    """A table for each panel, and one of the costs."""
    return [*map(_of_panel, comparison.panels), _of_costs(comparison.costs, comparison.panels)]


def order_text(comparison: Comparison) -> str:
    """How the encodings are ordered, for the reader."""
    panel = comparison.panels[0]
    return f"Encodings in the order of {words(panel.measure)} at {panel.decisive} tokens, the best first."


def _of_panel(panel: Panel) -> Table:
    lengths = shown_lengths(panel)
    notes: dict[str, int] = {}
    rows = []
    for curve in panel.curves:
        cells = [Cell(curve.label + trained_text(panel, curve))]
        cells += [_cell(panel, curve, panel.lengths.index(length), notes) for length in lengths]
        rows.append(tuple(cells))
    marked = [f"{one} (trained)" if panel.train_lengths == (one,) else str(one) for one in lengths]
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
        ("encoding", *marked),
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


def _spread(panel: Panel) -> list[str]:
    """What stands behind the values, as far as there is some."""
    several = any(sd is not None for curve in panel.curves for sd in curve.sd)
    interval = any(
        low is not None and sd is None
        for curve in panel.curves
        for low, sd in zip(curve.low, curve.sd, strict=True)
    )
    seeds = sorted({curve.seeds for curve in panel.curves})
    said = ["mean ± standard deviation over seeds"] if several else []
    said += ["(low–high): 95 % interval of a single seed, by bootstrap"] if interval else []
    return [*said, f"seeds: {'–'.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))}"]


def best(panel: Panel, index: int) -> float | None:
    """The best mean at a length; None where there are not two to choose from."""
    values = [curve.mean[index] for curve in panel.curves if curve.mean[index] is not None]
    if len(values) < 2:
        return None
    return min(values) if panel.lower_is_better else max(values)


def _cell(panel: Panel, curve: Curve, index: int, notes: dict[str, int]) -> Cell:
    note = curve.notes.get(panel.lengths[index])
    mark = raised(notes.setdefault(note, len(notes) + 1)) if note else ""
    value, beside = curve.mean[index], spread(curve, index)
    if value is None:
        return Cell(DASH, mark=mark)
    if beside:
        beside = f" {beside}" if beside.startswith("±") else f" ({beside})"
    return Cell(number(value), value == best(panel, index), beside, mark)


def spread(curve: Curve, index: int) -> str:
    """What stands beside a mean: the standard deviation over seeds, or the interval of a single one."""
    sd, low, high = curve.sd[index], curve.low[index], curve.high[index]
    if sd is not None:
        return f"± {small(sd)}"
    return f"{number(low)}–{number(high)}" if low is not None and high is not None else ""


def small(sd: float) -> str:
    """A standard deviation as a table has it."""
    # A spread that is not zero never reads as zero.
    return f"{sd:.3f}" if sd == 0 or sd >= 0.0005 else f"{sd:.0e}"


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
