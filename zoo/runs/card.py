"""The card of a run: what makes its checkpoint comparable to another's. Reading one imports nothing heavy."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from zoo.errors import InputError, Problem
from zoo.files import atomic_write, read_json
from zoo.recipe import Recipe
from zoo.recipe.diff import diff, recorded_on_resume
from zoo.recipe.encoding import encoding_label
from zoo.runs.code_source import code_sources, recorded_sources
from zoo.runs.folder import CARD

if TYPE_CHECKING:
    from zoo.data.source import DataSource

MAX_BYTES = 1 << 20
ADVICE = "; restore it, or move the run away"
LIBRARIES = ("torch", "lightning", "torchmetrics", "datasets", "tokenizers", "positional-encoding-zoo")

Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class Fingerprint(_Part):
    """Digests of the data: runs with the same ones have learned from the same tokens."""

    corpus: str | None = None
    tokenizer: str | None = None


class RecordedChange(_Part):
    """A change of a recipe key, or of what computes, with which a run was resumed at a step."""

    model_config = ConfigDict(extra="forbid")

    step: Count
    key: str
    old: JsonValue = Field(alias="from")
    new: JsonValue = Field(alias="to")


class Card(_Part):
    """What card.json, and a copy in every checkpoint, hold. Those without a default must be there."""

    task: str
    fingerprint: Fingerprint
    steps: Count
    tokens_seen: Count | None  # null: unknown, of an imported model
    parameters: dict[str, Count]
    encoding: str | None = None
    code_source: list[dict[str, str]] | None = None
    versions: dict[str, str | None] | None = None
    imported: dict[str, JsonValue] | None = None
    init_from: dict[str, JsonValue] | None = None
    git_commit: str | None = None
    finished: bool | None = None
    name: str | None = None
    data: str | None = None
    train_length: int | None = None
    seed: int | None = None
    precision: str | None = None
    compiled: bool | str | None = None
    device: str | None = None
    changed_on_resume: list[RecordedChange] | None = None


def faults_of(model: type[BaseModel], value: object, name: str) -> list[str]:
    """What keeps a value from being a model's, each fault with its key; empty where nothing does."""
    try:
        model.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        return [f"{'.'.join(map(str, one['loc'])) or name}: {one['msg']}" for one in faults]
    return []


def parameter_counts(model: Any) -> dict[str, int]:
    """Parameters of the encodings, of everything else, and together."""
    from zoo.encodings.base import Encoding  # torch

    of_encodings = {p for m in model.modules() if isinstance(m, Encoding) for p in m.parameters()}
    positional, total = (sum(p.numel() for p in some) for some in (of_encodings, model.parameters()))
    return {"positional": positional, "other": total - positional, "total": total}


def make_card(
    recipe: Recipe, model: Any, fingerprint: dict[str, str], init_from: dict[str, Any] | None = None
) -> dict[str, Any]:
    """All that is known before training; `steps` and `tokens_seen` grow with it.

    `init_from` is the run that its weights come from: what that one has learned counts too.
    """
    # A plugin's file that was edited since then is another encoding.
    plugins = {
        Path(file).name: hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in recipe.plugins
    }
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for library in LIBRARIES:
        versions[library] = None
        with suppress(PackageNotFoundError):
            versions[library] = version(library)
    return {
        "name": recipe.name,
        "encoding": encoding_label(recipe.model.encoding),
        "code_source": code_sources(recipe.as_dict()),
        "task": recipe.task.name,
        "data": recipe.data.name,
        "fingerprint": fingerprint | ({"plugins": plugins} if plugins else {}),
        "train_length": recipe.data.sequence_length,
        "seed": recipe.seed,
        "precision": recipe.trainer.precision,
        "compiled": recipe.compile,
        "init_from": init_from,
        "steps": 0,
        "tokens_seen": 0,
        "finished": False,
        "parameters": parameter_counts(model),
        "changed_on_resume": [],
        "versions": versions,
        "git_commit": _git_commit(),
    }


def note_changes(
    card: dict[str, Any], recipe: Recipe, stored: dict[str, Any], before: dict[str, Any], step: int
) -> None:
    """Record on the card of a resumed run the changes since its checkpoint, after earlier ones.

    `changed_on_resume` is a list of {"step", "key", "from", "to"}: recipe keys (`is_recorded_on_resume`),
    and of the card the device, the encodings' code, the versions of the libraries and the zoo's own commit.

    Args:
        card: the new card; changed in place.
        stored, before: the recipe and the card in the checkpoint.
        step: that of the checkpoint.
    """

    def computed_by(card: dict[str, Any]) -> dict[str, Any]:
        code = {source["name"]: source["sha256"] for source in recorded_sources(card)}
        return {"code": code} | {key: card.get(key) for key in ("device", "versions", "git_commit")}

    changes = [*recorded_on_resume(stored, recipe), *diff(computed_by(before), computed_by(card))]
    card["changed_on_resume"] = [
        *(before.get("changed_on_resume") or []),
        *({"step": step, "key": key, "from": old, "to": new} for key, old, new in changes),
    ]


def changed_data(card: dict[str, Any] | None, source: DataSource) -> list[str]:
    """What a model was trained on, by its checkpoint's card, and is another now: a sentence on each."""
    then = (card or {}).get("fingerprint", {})
    name = source.recipe.data.name
    words = {
        "tokenizer": "the training text gives another tokenizer",
        "corpus": f"the text of {name!r} has changed" if source.kind == "text" else f"{name!r} is made anew",
    }
    return [
        f"{word} ({then[key][:12]} then, {source.fingerprint[key][:12]} now)"
        for key, word in words.items()
        if key in then and then[key] != source.fingerprint[key]
    ]


def write_card(folder: Path, card: dict[str, Any]) -> None:
    atomic_write(folder / CARD, json.dumps(card, indent=2) + "\n")


def read_card(folder: Path, advice: str = ADVICE) -> dict[str, Any]:
    """The validated card in a run folder; `advice` is what to do about one that is not valid.

    Raises:
        InputError: it is missing, cannot be read, or is not a card; with all that is wrong with it.
    """
    file = folder / CARD
    if not os.path.lexists(file):
        raise InputError(Problem("the run's card is missing", where=str(file)))
    card = read_json(file, MAX_BYTES, advice)
    if faults := faults_of(Card, card, "card"):
        raise InputError(Problem(f"not the card of a run ({', '.join(faults)}){advice}", where=str(file)))
    return card


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
