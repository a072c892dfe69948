"""Reading a checkpoint file: what was written there, of the zoo, and nothing but data.

The archive's checksums are compared, which torch does not do; `torch.load(weights_only=True)` looks up no
class or function but its own for tensors; a pydantic model checks the rest. An exported checkpoint is a file
of safetensors, whose metadata hold what is not a tensor.
"""

from __future__ import annotations

import json
import re
import stat
import zipfile
from pathlib import Path
from typing import IO, Annotated, Any, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, model_validator
from torch import Tensor

from zoo.errors import InputError
from zoo.runs.card import Card, Count, faults_of
from zoo.runs.checkpoint_shards import DamagedShards, size_of_shards, with_shards

MAX_VALUES, MAX_DEPTH, MAX_TEXT = 500_000, 50, 100_000
"""Of what a checkpoint holds: more would keep whoever walks through it busy for ever."""
EMBEDDING = "model.tokens.weight"
SAFETENSORS = ".safetensors"
METADATA = "positional_encoding_zoo"
"""The key of what a file of safetensors holds beside its tensors, as JSON."""


class _Damaged(Exception):
    """It is not what was written; the text says why."""


class _Foreign(Exception):
    """It is not a checkpoint of the zoo; the text says why."""


class _Settings(BaseModel):
    model_config = ConfigDict(strict=True)

    recipe: dict[str, Any]
    vocab_size: Annotated[int, Field(gt=0)]


class _Content(BaseModel):
    """The parts of a checkpoint that are the zoo's own."""

    model_config = ConfigDict(strict=True, extra="allow")

    hyper_parameters: _Settings
    state_dict: Annotated[dict[str, InstanceOf[Tensor]], Field(min_length=1)]
    global_step: Count
    zoo_card: Card | None = None

    @model_validator(mode="after")
    def _vocabulary_is_embedded(self) -> Self:
        # Other models are built for this vocabulary: it may be no larger than the file.
        table, vocab_size = self.state_dict.get(EMBEDDING), self.hyper_parameters.vocab_size
        if table is not None and table.shape[:1] != (vocab_size,):
            raise ValueError(
                f"size mismatch for {EMBEDDING}: {list(table.shape)}, vocab_size is {vocab_size}"
            )
        return self


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU, as `trainer.save_checkpoint` gave it.

    `hyper_parameters` ("recipe", "vocab_size"), `state_dict`, `global_step` and, where there is one,
    `zoo_card` are of the types that they have in every checkpoint of the zoo; the rest is plain data.

    Raises:
        InputError: damaged, not a checkpoint of the zoo, or holding more than data.
    """
    try:
        # Opening a pipe would wait for a writer, and a device may never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise _Foreign("it is a folder" if path.is_dir() else "it is a pipe or a device, not a file")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if path.suffix == SAFETENSORS:
                content = _load_safetensors(path)
            else:
                _verify_checksums(file, size)
                file.seek(0)
                content = _load(file)
                shards = size_of_shards(path, content)
                if shards:
                    size += shards
                    content = with_shards(path, content)
        _validate_bounds(content, size)
        if faults := faults_of(_Content, content, "content"):
            raise _Foreign("; ".join(faults[:6]))
    except _Foreign as error:
        raise InputError(
            f"{path}: not a checkpoint of the zoo: {error}. What can be read is what `fit` writes, "
            f"RUN/checkpoints/last.ckpt or best.ckpt, and what `export --format safetensors` does"
        ) from error
    except (_Damaged, DamagedShards) as error:
        raise InputError(f"{path}: damaged: {error}. {alternatives(path)}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    return content


def write_safetensors(path: Path, content: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Write weights that `transformers` too can read, with the rest of a checkpoint as JSON beside them.

    Args:
        content: what `read_checkpoint` is to give but for the weights; plain data.
        weights: by the names that they are to have in the file; none shares memory with another.
    """
    from safetensors.torch import save_file

    about = {"format": "pt"} | ({METADATA: json.dumps(content)} if content else {})
    save_file({name: value.detach().cpu().contiguous() for name, value in weights.items()}, path, about)


def _load_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(METADATA)
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _Damaged(f"safetensors cannot load it ({error})") from error
    if text is None:
        raise _Foreign("it holds weights and no recipe, as a model that is not the zoo's own")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Damaged(f"its metadata are no JSON ({error})") from error
    if not isinstance(content, dict):
        raise _Foreign("its metadata hold no recipe")
    return {**content, "state_dict": weights}


def alternatives(path: Path) -> str:
    """What can be done about a checkpoint that cannot be used: a sentence."""
    others = sorted(file.name for file in path.parent.glob("*.ckpt") if file.name != path.name)
    if others:
        return (
            f"{' and '.join(others)} beside it may be intact: evaluate that, or copy it to {path.name} and "
            f"continue from there"
        )
    return "No other checkpoint lies beside it: take it from a copy, or train anew"


def _verify_checksums(file: IO[bytes], size: int) -> None:
    """Compare every record of the archive with its checksum.

    Raises:
        _Damaged, _Foreign: one differs, or it is not an archive as torch writes it.
    """
    file.seek(0)
    beginning = file.read(1024)
    if not beginning.strip(b"\0"):
        raise _Damaged("it is empty, or begins with zeros, as a file does whose writing was cut short")
    if not beginning.startswith(b"PK\x03\x04"):
        raise _Foreign("it does not begin like one; if it was one, it is damaged")
    try:
        with zipfile.ZipFile(file) as archive:
            # Torch never compresses: a few bytes could become any number.
            inflated = sum(record.file_size for record in archive.infolist()) > size
            broken = None if inflated else archive.testzip()
    except Exception as error:  # zipfile raises many kinds
        cause = "the directory of its records is missing or broken, as when the file was cut short"
        raise _Damaged(cause) from error
    if inflated:
        raise _Damaged("its records are larger than the file")
    if broken:
        raise _Damaged(f"what is in {broken} is not what was written there")


def _load(file: IO[bytes]) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds
        text = str(error)
        named = re.search(r"GLOBAL \S+|Unsupported (?:class|operand) \S+|function \S+", text)
        if named:
            raise InputError(
                f"{file.name}: not read, since it holds more than weights and plain data ({named[0]}), "
                f"and reading that could run code. "
                "A checkpoint of the zoo holds none: take one from whom you trust"
            ) from error
        line = (text.strip().splitlines() or [""])[0][:200]
        raise _Damaged(f"torch cannot load it ({type(error).__name__}: {line})") from error


def _validate_bounds(content: Any, size: int) -> None:
    """Refuse what never ends, such as a list that holds itself, and tensors larger than the file.

    Raises _Damaged.
    """
    ahead = [(content, 0)]
    for _ in range(MAX_VALUES):
        if not ahead:
            return
        value, depth = ahead.pop()
        if depth > MAX_DEPTH:
            raise _Damaged(f"what it holds is nested more than {MAX_DEPTH} deep")
        if isinstance(value, dict):
            ahead += ((one, depth + 1) for one in (*value, *value.values()))
        elif isinstance(value, list | tuple | set):
            ahead += ((one, depth + 1) for one in value)
        elif isinstance(value, Tensor):
            # One element can be repeated any number of times without being stored.
            stored = value.layout is torch.strided and value.device.type == "cpu"
            if not stored or value.numel() * value.element_size() > size:
                raise _Damaged(f"a tensor of shape {list(value.shape)} is more than the file can hold")
        elif isinstance(value, str) and len(value) > MAX_TEXT:
            raise _Damaged(f"it holds a text of {len(value)} characters")
        elif type(value) is int and not -(2**63) <= value < 2**63:
            raise _Damaged("it holds a number of more than 64 bits")
    raise _Damaged(f"it holds more than {MAX_VALUES} values")
