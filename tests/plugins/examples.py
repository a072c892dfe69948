"""Plugins of each kind but encodings: those of docs/add-your-own.md."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "add-your-own.md").read_text(encoding="utf-8")


def source_of(kind):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (source,) = [block for block in blocks if f"@zoo.register.{kind}(" in block]
    return source


DATASET, OPTIMIZER, PROTOCOL = map(source_of, ("dataset", "optimizer", "protocol"))
KINDS = {
    "dataset": (DATASET, {"data": {"name": "modular_sum", "modulus": 5}}, "data.modulus"),
    "task": (source_of("task"), {"task": {"name": "smoothed", "smoothing": 0.2}}, "task.smoothing"),
    "protocol": (PROTOCOL, {"evaluate": {"protocols": ["window_ends"], "ends": 3}}, "evaluate.ends"),
    "optimizer": (OPTIMIZER, {"optimizer": {"name": "signed", "decay": 0.8}}, "optimizer.decay"),
    "schedule": (
        source_of("schedule"), {"optimizer": {"schedule": "inverse_root", "floor": 0.05}}, "optimizer.floor",
    ),
}  # fmt: skip
"""The source of each kind, its part of a recipe, and the key of its option."""
