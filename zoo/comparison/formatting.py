"""Numbers, names and protocols as all outputs of a report have them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

DASH = "–"
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | None) -> str:
    """A measure, short enough for a table; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return DASH
    for below, form in ((10, ".3f"), (100, ".2f"), (1000, ".1f"), (1e6, ",.0f")):
        if abs(value) < below:
            return f"{value:{form}}"
    return f"{value:.2e}"


def small(value: float) -> str:
    """A standard deviation or a distance: one that is not zero never reads as zero."""
    return number(value) if value == 0 or value >= 0.0005 else f"{value:.0e}"


def signed(difference: float) -> str:
    """A difference, with its sign."""
    if difference == 0:
        return "0.000"
    return f"{'+' if difference > 0 else '-'}{small(abs(difference))}"


def count_text(value: float | None) -> str:
    """A count, with separators; a dash for None and NaN."""
    return DASH if value is None or math.isnan(value) else f"{value:,.0f}"


def display_name(name: str) -> str:
    """A measure or a protocol as a reader has it: `bits per byte`."""
    return {"loss_nats": "loss in nats"}.get(name, name.replace("_", " "))


def protocol_text(protocol: str, parameters: dict[str, Any]) -> str:
    """A protocol with its parameters: `sliding (stride 0.5)`."""
    said = ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in parameters.items())
    return f"{protocol} ({said})" if said else protocol


def _value(value: object) -> str:
    if isinstance(value, dict) and "name" in value:  # something named, with its options
        options = (f"{key} {_value(own)}" for key, own in value.items() if key != "name")
        return ", ".join([str(value["name"]), *options])
    return value if isinstance(value, str) else json.dumps(value)


def kind_text(kind: Sequence[str]) -> str:
    """A protocol with its parameters, of their names and JSON."""
    return protocol_text(kind[0], json.loads(kind[1]))


def panel_title(panel: pd.DataFrame) -> str:
    """The protocol of a panel of a summary, with its parameters; of the path of a text the last part."""
    first = panel.iloc[0]
    parameters, path = json.loads(first["parameters"]), text_path(panel)
    return protocol_text(first["protocol"], parameters | ({"data": PurePath(path).name} if path else {}))


def text_path(panel: pd.DataFrame) -> str:
    """The path of the text of a panel, where its title has the last part alone; else empty."""
    path = json.loads(panel.iloc[0]["parameters"]).get("data", "")
    return path if PurePath(path).name not in ("", path) else ""
