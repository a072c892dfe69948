"""Making a run of a published decoder: its weights, under the zoo's names, with all that a run folder has."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.console import progress_bar
from zoo.errors import InputError, Problem
from zoo.files import atomic_file, made_complete, read_json
from zoo.pretrained.architectures import Architecture, Decoder, architecture_of
from zoo.pretrained.config import Config
from zoo.pretrained.weights import Row
from zoo.recipe import Recipe, resolve
from zoo.runs.card import make_card, write_card
from zoo.runs.folder import BEST, LAST, validate_free, write_recipe
from zoo.runs.load import validate_weights
from zoo.tasks import build_task

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
LARGEST_CONFIG = 16 << 20
MANY = 6
"""No more names than these in a message."""


@dataclass(frozen=True)
class Published:
    """A folder in Hugging Face's format, whose configuration was understood.

    Attributes:
        origin: the path or the id that was given.
        name: of its architecture.
        files: the file of each weight.
    """

    folder: Path
    origin: str
    name: str
    architecture: Architecture
    decoder: Decoder
    files: dict[str, Path]


def import_model(
    origin: str,
    name: str | None = None,
    sets: Sequence[str] = (),
    ignored: Collection[str] = (),
    out: Path | None = None,
) -> Path:
    """Make a run folder of a pretrained decoder, complete or not at all.

    Args:
        origin: a folder in Hugging Face's format, or an id of the hub.
        name: of the run; by default the last part of the origin.
        sets: `key=value` changes to the recipe: what to evaluate it on.
        ignored: keys of its `config.json` that would be refused as unknown.
        out: the run folder; by default runs/NAME.

    Returns: the run folder.

    Raises:
        InputError: nothing usable there, an architecture or a key that is not known, weights that do not fit
            the configuration, or a run of this name.
        RunError: the disk is full.
    """
    published = read_published(origin, ignored)
    name = name or re.sub(r"[^\w.-]+", "-", origin.rstrip("/").split("/")[-1]).strip("-._") or "imported"
    folder = out or Path("runs") / name
    validate_free(folder)
    tokenizer = published.folder / TOKENIZER
    if not tokenizer.is_file():
        advice = "AutoTokenizer.from_pretrained(...).save_pretrained(...) writes one"
        raise InputError(Problem(f"no {TOKENIZER}; {advice}", where=str(published.folder)))
    recipe = recipe_of(published, name, folder / TOKENIZER, sets)
    with made_complete(folder) as made:
        (made / LAST.parent).mkdir()
        shutil.copyfile(tokenizer, made / TOKENIZER)
        task = build_task(recipe, published.decoder.vocab_size)
        weights = {f"model.{name}": value for name, value in decoder_weights(published, recipe)}
        own = task.state_dict()
        weights |= {name: value for name, value in own.items() if not name.startswith("model.")}
        validate_weights(weights, task, published.folder)
        card = make_card(recipe, task.model, _fingerprint(tokenizer)) | _unknown(published)
        content = {
            "hyper_parameters": {"recipe": recipe.as_dict(), "vocab_size": published.decoder.vocab_size},
            "state_dict": weights, "global_step": 0, "zoo_card": card,
        }  # fmt: skip
        with atomic_file(made / LAST, sum(value.nbytes for value in weights.values())) as file:
            torch.save(content, file)
        (made / BEST).hardlink_to(made / LAST)
        write_recipe(made, recipe)
        write_card(made, card)
    return folder


def read_published(origin: str, ignored: Collection[str] = ()) -> Published:
    """Find a model, and understand its configuration and which weights there are.

    Raises:
        InputError: not there, not in this format, or with a key that is not known.
    """
    folder = Path(origin) if Path(origin).is_dir() else _download(origin)
    file = folder / CONFIG
    if not file.is_file():
        raise InputError(Problem(f"no {CONFIG}: not a model in Hugging Face's format", where=str(folder)))
    values = read_json(file, LARGEST_CONFIG)
    if not isinstance(values, dict):
        raise InputError(Problem("not a mapping", where=str(file)))
    config = Config(values, str(file), ignored)
    name, architecture = architecture_of(config)
    if config.section("quantization_config").values:
        config.problem("quantization_config", "quantized weights cannot be imported")
    decoder = architecture.read(config)
    config.check()
    return Published(folder, origin, name, architecture, decoder, _weight_files(folder))


def decoder_weights(published: Published, recipe: Recipe) -> Iterator[tuple[str, Tensor]]:
    """The decoder's weights by their names in it, in float32, read from one file after the other.

    Raises:
        InputError: some are missing, or left over.
    """
    rows = list(published.architecture.rows(recipe.as_dict()["model"]))
    there = _renamed(published)
    wanted = {name for row in rows for name in row.theirs}
    problems = [f"{name} is missing" for name in sorted(wanted - there.keys())]
    tied = {"lm_head.weight", "embed_out.weight"} if recipe.model.tie_embeddings else set()
    left = sorted(there.keys() - wanted - tied)
    problems += [
        f"{name} has no place in the decoder"
        for name in left
        if not name.endswith(published.architecture.buffers)
    ]
    if problems:
        more = [f"and {len(problems) - MANY} more"] if len(problems) > MANY else []
        text = f"its weights do not fit its configuration: {'; '.join([*problems[:MANY], *more])}"
        raise InputError(Problem(text, where=str(published.folder)))
    with _opened(published.files.values()) as files, progress_bar(len(rows), "weights", "weight") as bar:
        for row in rows:
            parts = [files[there[name][0]].get_tensor(there[name][1]).float() for name in row.theirs]
            yield row.ours, _joined(row, parts, published.folder)
            bar.update()


def _joined(row: Row, parts: list[Tensor], folder: Path) -> Tensor:
    shapes = [list(part.shape) for part in parts]
    try:
        if row.sizes and [len(part) for part in parts] != list(row.sizes):
            raise RuntimeError
        return row.join(parts)
    except RuntimeError as error:
        message = f"{', '.join(row.theirs)}: shapes {shapes} are not those of its configuration"
        raise InputError(Problem(message, where=str(folder))) from error


def recipe_of(published: Published, name: str, tokenizer: Path, sets: Sequence[str] = ()) -> Recipe:
    """The recipe of an imported decoder: WikiText-2 in its own tokens, unless `sets` say otherwise."""
    length = published.decoder.length
    return resolve(
        {
            "name": name,
            "task": "language_modelling",
            "model": published.decoder.model,
            "data": {
                "name": "wikitext-2", "sequence_length": length, "batch_size": 1, "tokenizer": str(tokenizer),
            },
            "optimizer": {"lr": 1e-5},
            "trainer": {"max_steps": 1000, "precision": "32-true"},
            "compile": False,
        },
        sets,
    )  # fmt: skip


def _unknown(published: Published) -> dict[str, Any]:
    """What the card says of the origin; null is what nobody knows."""
    files = sorted({CONFIG, TOKENIZER, *(file.name for file in published.files.values())})
    digests = {}
    for name in files:
        with (published.folder / name).open("rb") as file:
            digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    imported = {"from": published.origin, "architecture": published.name, "sha256": digests}
    return {"imported": imported, "steps": 0, "tokens_seen": None, "seed": None, "finished": True}


def _fingerprint(tokenizer: Path) -> dict[str, str]:
    return {"tokenizer": hashlib.sha256(tokenizer.read_bytes()).hexdigest()}


def _download(origin: str) -> Path:
    """The folder of a model of the hub, fetched or fetched before."""
    if not HUB_ID.fullmatch(origin):
        raise InputError(Problem("no such folder, and no id of the hub (OWNER/NAME)", where=origin))
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(origin, allow_patterns=["*.json", "*.safetensors"]))
    except Exception as error:  # of the hub, of the network, of files: many kinds
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        message = f"no such folder, and it could not be fetched from the hub: {cause}"
        raise InputError(Problem(message, where=origin)) from error


def _weight_files(folder: Path) -> dict[str, Path]:
    """The file of each weight, by the name that it has there."""
    from safetensors import SafetensorError, safe_open

    if (index := folder / INDEX).is_file():
        content = read_json(index, LARGEST_CONFIG)
        table = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(table, dict) or not all(isinstance(file, str) for file in table.values()):
            raise InputError(Problem("has no weight_map", where=str(index)))
        names = sorted(set(table.values()))
        outside = [name for name in names if Path(name).name != name]
        missing = [name for name in names if name not in outside and not (folder / name).is_file()]
        problems = [Problem(f"{name!r} lies outside its folder", where=str(index)) for name in outside]
        problems += [Problem(f"{name} is not there", where=str(index)) for name in missing]
        if problems:
            raise InputError(problems)
        files = [folder / name for name in names]
    elif (single := folder / SINGLE).is_file():
        files = [single]
    else:
        pickled = next(folder.glob("*.bin"), None)
        why = f"; {pickled.name} is not read, since reading it could run code" if pickled else ""
        raise InputError(Problem(f"no {SINGLE} and no {INDEX}{why}", where=str(folder)))
    found: dict[str, Path] = {}
    for file in files:
        try:
            with safe_open(file, "pt") as opened:
                found |= dict.fromkeys(opened.keys(), file)
        except SafetensorError as error:
            message = f"damaged: safetensors cannot read it ({error})"
            raise InputError(Problem(message, where=str(file))) from error
    return found


def _renamed(published: Published) -> dict[str, tuple[Path, str]]:
    """The file and the name there of each weight, by its name with the prefix of the architecture."""
    prefix = published.architecture.prefix
    base_alone = not any(name.startswith(prefix) for name in published.files)
    return {prefix + name if base_alone else name: (file, name) for name, file in published.files.items()}


@contextmanager
def _opened(paths: Collection[Path]) -> Iterator[Mapping[Path, Any]]:
    from contextlib import ExitStack

    from safetensors import safe_open

    with ExitStack() as stack:
        yield {path: stack.enter_context(safe_open(path, "pt")) for path in set(paths)}
