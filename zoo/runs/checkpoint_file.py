"""Reading a checkpoint file without running code: checksums and `torch.load(weights_only=True)`.

An exported checkpoint is a safetensors file with the rest as JSON in its metadata.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from zoo.errors import MOST_SHOWN, InputError, first_line, shorten
from zoo.runs.folder import EXPORTED, LAST

SAFETENSORS = ".safetensors"
METADATA = "positional_encoding_zoo"
"""The metadata key of a safetensors file for everything but its tensors, as JSON."""
FOREIGN = "not a checkpoint of the zoo"
KEYS = ("hyper_parameters", "state_dict", "global_step")
"""Every checkpoint has them."""


class BadCheckpoint(Exception):
    """It is damaged, or not a checkpoint of the zoo; the text says why."""


def find_checkpoint(path: Path) -> Path:
    """A checkpoint file itself, or the last one of a run folder, of its checkpoints or of an export.

    Raises:
        InputError: neither is there, or there is no permission to look.
    """
    try:
        if path.is_file():
            return path
        if not path.is_dir():
            raise InputError(f"{path}: no such run or checkpoint")
        last = path / LAST
        for file in (last, path / LAST.name, path / EXPORTED):
            if file.is_file():
                return file
        runs = sorted(str(file.parent.parent) for file in path.glob(f"*/{LAST}"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    why = f" ({last} does not exist)"
    if runs:
        why = f"; the runs in it: {shorten(', '.join(runs), MOST_SHOWN)}"
    raise InputError(f"{path}: no checkpoint in it{why}")


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU, as `trainer.save_checkpoint` gave it.

    It has `hyper_parameters` ("recipe", "vocab_size"), `state_dict`, `global_step` and mostly `zoo_card`.

    Raises:
        InputError: damaged, not a checkpoint of the zoo, or holding more than data.
    """
    try:
        if path.suffix == SAFETENSORS:
            content = _load_safetensors(path)
        else:
            with path.open("rb") as file:
                _verify_checksums(file)
                file.seek(0)
                content = _load(file)
        if missing := [key for key in KEYS if not isinstance(content, dict) or key not in content]:
            raise BadCheckpoint(f"{FOREIGN}: without {', '.join(missing)}")
        own = content["hyper_parameters"]  # any model of Lightning may have them
        if not isinstance(own, dict) or not own.keys() >= {"recipe", "vocab_size"}:
            raise BadCheckpoint(f"{FOREIGN}: hyper_parameters without recipe and vocab_size")
    except BadCheckpoint as error:
        remedy = f". {alternatives(path)}" if path.suffix == ".ckpt" else ""
        raise InputError(f"{path}: {error}{remedy}") from error
    except OSError as error:
        raise InputError(f"{error.filename or path}: cannot be read: {error.strerror or error}") from error
    return content


def write_safetensors(path: Path, content: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Write weights that `transformers` too can read, with the rest of a checkpoint as JSON.

    Args:
        content: what `read_checkpoint` is to give but for the weights; plain data.
        weights: by the names that they are to have in the file; none shares memory with another.
    """
    from safetensors.torch import save_file

    about = {"format": "pt"} | ({METADATA: json.dumps(content)} if content else {})
    path.touch()
    mode = path.stat().st_mode
    save_file({name: value.detach().cpu().contiguous() for name, value in weights.items()}, path, about)
    path.chmod(mode)  # safetensors writes a file that its owner alone may read


def _load_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(METADATA)
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise BadCheckpoint(f"damaged: safetensors cannot load it ({error})") from error
    if text is None:
        raise BadCheckpoint(f"{FOREIGN}: it holds weights without a recipe")
    return {**json.loads(text), "state_dict": weights}


def alternatives(path: Path) -> str:
    """Remedy for a checkpoint that cannot be used: a sentence."""
    others = sorted(file.name for file in path.parent.glob("*.ckpt") if file.name != path.name)
    if others:
        return (
            f"{' and '.join(others)} next to it may be intact: evaluate that, or copy it to {path.name} and "
            f"continue from there"
        )
    return "No other checkpoint lies next to it: take it from a copy, or train anew"


def _verify_checksums(file: IO[bytes]) -> None:
    """Compare every record of the archive with its checksum, which torch does not do.

    Raises:
        BadCheckpoint: one differs, or the file is not an archive.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            broken = archive.testzip()
    except Exception as error:  # zipfile raises many kinds
        cause = "the directory of its records is missing (an interrupted write)"
        raise BadCheckpoint(f"damaged: {cause}, or {FOREIGN}") from error
    if broken:
        raise BadCheckpoint(f"damaged: the checksum of {broken} is wrong")


def _load(file: IO[bytes]) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds
        named = re.search(r"GLOBAL \S+|Unsupported (?:class|operand) \S+|function \S+", str(error))
        if named:
            raise InputError(
                f"{file.name}: not read: it holds more than weights and plain data ({named[0]}), and reading "
                "that could run code. Zoo checkpoints hold tensors and plain data only: take one from a "
                "source you trust"
            ) from error
        cause = f"{type(error).__name__}: {first_line(error)}"
        raise BadCheckpoint(f"damaged: torch cannot load it ({cause})") from error
