"""The card of a run: what makes its checkpoint comparable to another's. Reading one imports nothing heavy."""

from __future__ import annotations

import json
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import InputError, Problem
from zoo.files import atomic_write, read_json
from zoo.launch.devices import machine
from zoo.recipe import Recipe
from zoo.recipe.diff import diff, recorded_on_resume
from zoo.recipe.encoding import encoding_label
from zoo.runs.code_source import code_sources, recorded_sources
from zoo.runs.folder import CARD

if TYPE_CHECKING:
    from zoo.data.source import DataSource

LIBRARIES = ("torch", "lightning", "torchmetrics", "datasets", "tokenizers", "positional-encoding-zoo")
KEYS = ("task", "fingerprint", "steps", "tokens_seen", "parameters")
"""Every card has them."""


def parameter_counts(model: Any) -> dict[str, int]:
    """Parameters of the encodings, of everything else, and together."""
    from zoo.encodings.base import Encoding  # torch

    of_encodings = {p for m in model.modules() if isinstance(m, Encoding) for p in m.parameters()}
    positional, total = (sum(p.numel() for p in some) for some in (of_encodings, model.parameters()))
    return {"positional": positional, "other": total - positional, "total": total}


def make_card(
    recipe: Recipe,
    model: Any,
    fingerprint: dict[str, str],
    init_from: dict[str, Any] | None = None,
    device: str | None = None,
    count: int = 1,
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """All that is known before training; `steps` and `tokens_seen` grow with it.

    Args:
        init_from: the run that its weights come from: what that one has learned counts too.
        device, count: the kind of devices, and how many train it.
        before: the content of the checkpoint that is resumed from. `changed_on_resume` records the changes
            since then as {"step", "key", "from", "to"}, after earlier ones.
    """
    parameters = parameter_counts(model)
    sources, label = code_sources(recipe.as_dict()), encoding_label(recipe.model.encoding)
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for library in LIBRARIES:
        versions[library] = None
        with suppress(PackageNotFoundError):
            versions[library] = version(library)
    card = {
        "name": recipe.name,
        "encoding": label,
        "code_source": sources,
        "task": recipe.task.name,
        "data": recipe.data.name,
        "fingerprint": fingerprint,
        "train_length": recipe.data.sequence_length,
        "seed": recipe.seed,
        "precision": recipe.trainer.precision,
        "compiled": recipe.compile,
        "init_from": init_from,
        "steps": 0,
        "tokens_seen": 0,
        "finished": False,
        "parameters": parameters,
        "vocab_size": model.tokens.num_embeddings,
        "changed_on_resume": [],
        "versions": versions,
        "git_commit": _git_commit(),
    } | ({} if device is None else {"device": device, "machine": machine(device, count)})
    if before:
        step, stored = before["global_step"], before["hyper_parameters"]["recipe"]
        changes = recorded_on_resume(stored, recipe)
        changes += diff(_computed_by(before["zoo_card"]), _computed_by(card))
        card["changed_on_resume"] = [
            *(before["zoo_card"].get("changed_on_resume") or []),
            *({"step": step, "key": key, "from": old, "to": new} for key, old, new in changes),
        ]
    return card


def _computed_by(card: dict[str, Any]) -> dict[str, Any]:
    """The entries of a card whose changes a resumed run records, besides those of its recipe."""
    code = {source["name"]: source["sha256"] for source in recorded_sources(card)}
    return {"code": code} | {key: card.get(key) for key in ("device", "versions", "git_commit")}


def changed_data(card: dict[str, Any] | None, source: DataSource) -> list[str]:
    """Differences between the training data on the card and the data now: a sentence on each."""
    then = (card or {}).get("fingerprint", {})
    name = source.recipe.data.name
    words = {
        "tokenizer": "the training text gives another tokenizer",
        "corpus": f"the {'text' if source.kind == 'text' else 'generator'} of {name!r} has changed",
    }
    return [
        f"{word} ({then[key][:12]} then, {source.fingerprint[key][:12]} now)"
        for key, word in words.items()
        if key in then and then[key] != source.fingerprint[key]
    ]


def write_card(folder: Path, card: dict[str, Any]) -> None:
    atomic_write(folder / CARD, json.dumps(card, indent=2) + "\n")


def read_card(folder: Path) -> dict[str, Any]:
    """The card in a run folder.

    Raises:
        InputError: it is missing, cannot be read, or is not a card.
    """
    file = folder / CARD
    if not file.exists():
        raise InputError(Problem("the run's card is missing", where=str(file)))
    advice = "; restore it, or move the run away"
    card = read_json(file, advice=advice)
    if missing := [key for key in KEYS if key not in card] if isinstance(card, dict) else KEYS:
        raise InputError(Problem(f"not the card of a run: no {', '.join(missing)}{advice}", where=str(file)))
    return card


def steps_done(folder: Path) -> int:
    """The optimizer steps of the run in a folder; 0 before its first checkpoint."""
    return read_card(folder)["steps"] if (folder / CARD).exists() else 0


def _git_commit() -> str | None:
    """The commit of the zoo's own source, with `-dirty` where it was changed; None outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
