"""A folder of exported models, ready to upload, with an index.

FOLDER/NAME/       an exported model; `model_name` says what it is
FOLDER/index.json  of each: name, size and digest of its weights, parameters, steps, digests of its data
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem, collect
from zoo.files import atomic_write, file_sha256, read_json
from zoo.pretrained.export import export
from zoo.pretrained.model_card import model_name
from zoo.runs.folder import CARD, EXPORTED
from zoo.runs.load import load_run

INDEX = "index.json"


def release(paths: Sequence[Path], out: Path, form: str, sets: Sequence[str] = ()) -> list[Path]:
    """Export models into a folder, each into one of its own, and write the index of all that are there.

    Where several of them have one `model_name`, the name of the run follows it.

    Args:
        paths: run folders or checkpoints.
        out: the folder; it may have other models.
        form: `hf` or `safetensors`.
        sets: `key=value` changes that leave the weights as they are.

    Returns: the folders of the models.

    Raises:
        InputError: every problem of any of them, before the first is written; a model that the format cannot
            hold, which leaves those before it.
    """
    problems: list[Problem] = []
    names: dict[Path, tuple[str, str]] = {}
    for path in paths:
        with collect(problems):
            task = load_run(path, sets).task
            names[path] = model_name(task.recipe.as_dict(), task.card), task.recipe.name
    counts = Counter(name for name, _ in names.values())
    named = {
        path: out / (name if counts[name] == 1 else f"{name}-{run}") for path, (name, run) in names.items()
    }
    for folder, count in Counter(named.values()).items():
        if folder.exists():
            message = "is there already; remove it, or choose another --out"
            problems.append(Problem(message, where=str(folder)))
        elif count > 1:
            same = ", ".join(str(path) for path in named if named[path] == folder)
            problems.append(Problem(f"would be the name of {count} models: {same}", where=folder.name))
    if problems:
        raise InputError(problems)
    for path, folder in named.items():
        export(path, folder, form, sets)
        atomic_write(out / INDEX, json.dumps(index(out), indent=1) + "\n")
    return [*named.values()]


def index(out: Path) -> list[dict[str, Any]]:
    """The exported models in a folder, by name."""
    found = []
    for weights in sorted(out.glob(f"*/{EXPORTED}")):
        card = read_json(weights.parent / CARD)
        found.append({
            "name": weights.parent.name, "weights": weights.name, "bytes": weights.stat().st_size,
            "sha256": file_sha256(weights), "parameters": card.get("parameters"), "steps": card.get("steps"),
            "fingerprint": card.get("fingerprint"),
        })  # fmt: skip
    return found
