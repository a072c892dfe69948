"""The tables of the page: values by length with the best in bold, notes as footnotes, and the costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.comparison.comparison import Comparison, Curve, Panel
from zoo.comparison.page.looks import look
from zoo.comparison.tables import DASH, against, best, spread, tables, trained_text, words
from zoo.evaluation.curves import value_text
from zoo.evaluation.exports import number


def panel_table(panel: Panel, indices: Mapping[str, int]) -> dict[str, Any]:
    """What page.html says of a panel: its heading and its table."""
    notes: dict[str, int] = {}
    return {
        "title": panel.protocol.replace("_", " "),
        "parameters": ", ".join(
            f"{words(name)}\u00a0{value_text(value)}" for name, value in panel.parameters.items()
        ),
        "measure": words(panel.measure),
        "better": "lower" if panel.lower_is_better else "higher",
        "against": against(panel),
        "trained": " or ".join(map(str, panel.train_lengths)),
        "spread": _meaning(panel),
        "columns": [
            {"text": length, "trained": panel.train_lengths == (length,)} for length in panel.lengths
        ],
        "curves": [
            {
                "label": curve.label,
                "beside": trained_text(panel, curve),
                "index": indices[curve.label],
                "look": look(indices[curve.label]),
                "seeds": curve.seeds,
                "cells": [_cell(panel, curve, place, notes) for place in range(len(panel.lengths))],
            }
            for curve in panel.curves
        ],
        "notes": list(notes),
    }


def _meaning(panel: Panel) -> str:
    beside = {
        "sd" if curve.sd[place] is not None else "interval"
        for curve in panel.curves
        for place in range(len(panel.lengths))
        if curve.mean[place] is not None and spread(curve, place)
    }
    said = {
        "sd": "± and the shade are one standard deviation over the seeds, each of which is a ring.",
        "interval": "Ranges, and the shade around a single seed, are 95 % intervals by bootstrap.",
    }
    return " ".join(text for kind, text in said.items() if kind in beside)


def _cell(panel: Panel, curve: Curve, place: int, notes: dict[str, int]) -> dict[str, Any]:
    mean = curve.mean[place]
    note = curve.notes.get(panel.lengths[place])
    return {
        "text": DASH if mean is None else number(mean),
        "best": mean is not None and mean == best(panel, place),
        "spread": "" if mean is None else spread(curve, place),
        "note": notes.setdefault(note, len(notes) + 1) if note else None,
    }


def cost_table(comparison: Comparison, indices: Mapping[str, int]) -> dict[str, Any]:
    """What page.html says of the costs."""
    table = tables(comparison)[-1]
    rows = []
    for label, *cells in ([cell.text for cell in row] for row in table.rows):
        index = indices[label]
        rows.append({"label": label, "index": index, "look": look(index), "cells": cells})
    return {"columns": table.header, "rows": rows, "below": table.below}
