"""The tables of the page: values by length with winners in bold, notes as footnotes, differences, costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.evaluation.curves import value_text
from zoo.evaluation.exports import number
from zoo.reports.report import Comparison, Curve, Panel
from zoo.reports.style import look
from zoo.reports.tables import (
    DASH,
    against,
    differences_table,
    spread,
    spread_text,
    tables,
    trained_text,
    words,
)


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
        "differences": _differences(panel, indices),
    }


def _meaning(panel: Panel) -> str:
    text = spread_text(panel)
    said = [
        f"Ranges and shades: {text.removeprefix('(low–high): ')}."
        if text.startswith("(low")
        else f"{text[:1].upper()}{text[1:]}."
    ]
    if any(curve.seeds > 1 for curve in panel.curves):
        said.append("Each seed is a ring.")
    return " ".join(said)


def _differences(panel: Panel, indices: Mapping[str, int]) -> dict[str, Any] | None:
    """The differences to the reference, as the other tables have them."""
    table = differences_table(panel)
    if table is None:
        return None
    rows = []
    for curve, (label, *cells) in zip(panel.curves, table.rows, strict=True):
        texts = [cell.text + cell.spread + cell.mark for cell in cells]
        index = indices[curve.label]
        rows.append({"label": label.text, "index": index, "look": look(index), "cells": texts})
    return {"reference": panel.reference, "columns": table.header, "rows": rows, "below": table.below}


def _cell(panel: Panel, curve: Curve, place: int, notes: dict[str, int]) -> dict[str, Any]:
    mean = curve.mean[place]
    note = curve.notes.get(panel.lengths[place])
    return {
        "text": DASH if mean is None else number(mean),
        "best": panel.winner(panel.lengths[place]) == curve.label,
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
