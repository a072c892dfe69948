"""Pretrained decoders in Hugging Face's format: what a folder holds, understood before torch is imported."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from zoo.errors import InputError, Problem
from zoo.files import read_json
from zoo.pretrained.architectures import Architecture, Decoder, architecture_of
from zoo.pretrained.config import Config

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
LARGEST_JSON = 16 << 20


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


def read_published(origin: str, ignored: Collection[str] = ()) -> Published:
    """Find a model, and understand its configuration and which weights there are.

    Raises:
        InputError: not there, not in this format, or with a key that is not known.
    """
    folder = Path(origin) if Path(origin).is_dir() else _download(origin)
    file = folder / CONFIG
    if not file.is_file():
        raise InputError(Problem(f"no {CONFIG}: not a model in Hugging Face's format", where=str(folder)))
    values = read_json(file, LARGEST_JSON)
    if not isinstance(values, dict):
        raise InputError(Problem("not a mapping", where=str(file)))
    name, architecture = architecture_of(values, str(file))
    config = Config(values, str(file), architecture.defaults, ignored)
    if values.get("quantization_config"):
        config.problem("quantization_config", "quantized weights cannot be imported")
        config.taken.add("quantization_config")
    decoder = architecture.read(config)
    config.check()
    return Published(folder, origin, name, architecture, decoder, _weight_files(folder))


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
        table = read_json(index, LARGEST_JSON).get("weight_map")
        if not isinstance(table, dict):
            raise InputError(Problem("has no weight_map", where=str(index)))
        names = sorted(set(table.values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise InputError(Problem(f"{name} is not there", where=str(index)) for name in missing)
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
            with safe_open(file, "np") as opened:
                found |= dict.fromkeys(opened.keys(), file)
        except SafetensorError as error:
            message = f"damaged: safetensors cannot read it ({error})"
            raise InputError(Problem(message, where=str(file))) from error
    return found
