"""Checkpoints in shards: each process writes its share of the tensors, and no process holds all of them.

The checkpoint is still one file, RUN/checkpoints/last.ckpt, with everything but these tensors; it names the
folder of their shards next to it, which `torch.distributed.checkpoint` writes as safetensors. A save is done
when that file is renamed to its name: the old file names the old folder until then.
"""

from __future__ import annotations

import secrets
import shutil
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

from zoo.files import fsync_folder, raise_disk_full

SHARDS = "zoo_shards"
"""The key of a checkpoint that names the folder and the files in it, with their bytes and checksums."""
SHARD = "zoo_shard"
"""The key that replaces a tensor: its name in the shards."""
_BLOCK = 1 << 24


class BadCheckpoint(Exception):
    """It is damaged, or not a checkpoint of the zoo; the text says why."""


def take_shards(content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, DTensor]]:
    """A checkpoint with a name in place of each sharded tensor, and these by their names."""
    tensors: dict[str, DTensor] = {}
    names: dict[tuple[int, torch.Size], str] = {}  # two parameters may be one

    def take(value: Any) -> Any:
        if not isinstance(value, DTensor):
            return value.cpu() if isinstance(value, Tensor) else value
        local = value.to_local()
        memory = (local.data_ptr() if local.numel() else id(value), value.shape)
        name = names.setdefault(memory, f"tensor-{len(names)}")
        tensors[name] = value
        return {SHARD: name}

    return tree_map(take, content), tensors


def write_shards(checkpoint: Path, step: int, tensors: dict[str, DTensor]) -> dict[str, Any]:
    """Write the shards of a checkpoint, to be committed by writing its file. All processes must call it.

    Returns: what the file is to hold under `SHARDS`.

    Raises:
        OSError: the disk is full; in every process.
    """
    from torch.distributed.checkpoint import HuggingFaceStorageWriter, save
    from torch.distributed.checkpoint.api import CheckpointException

    # Never the name of the shards that the old file names: a run may save a step again.
    chosen = [f"{checkpoint.stem}-{step}-{secrets.token_hex(4)}.shards"]
    dist.broadcast_object_list(chosen)
    folder = checkpoint.parent / chosen[0]
    with raise_disk_full(checkpoint):
        try:
            save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
        except CheckpointException as error:
            causes = [cause for cause, _ in error.failures.values()]
            raise next((one for one in causes if isinstance(one, OSError)), error) from error
    fsync_folder(folder)
    files = sorted(folder.iterdir())
    mine = files[dist.get_rank() :: dist.get_world_size()]
    records: list[dict[str, Any]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(records, {file.name: _record(file) for file in mine})
    return {"folder": folder.name, "files": {name: one for part in records for name, one in part.items()}}


def remove_old_shards(folder: Path) -> None:
    """Remove the shards that no checkpoint in a folder names: those of earlier saves, or of killed ones."""
    old = list(folder.glob("*.shards"))
    if not old:
        return
    named = b""
    for file in folder.glob("*.ckpt"):
        try:
            with zipfile.ZipFile(file) as archive:
                plain = [name for name in archive.namelist() if name.endswith("/data.pkl")]
                named += b"".join(map(archive.read, plain))
        except (OSError, zipfile.BadZipFile):
            return  # its shards are unknown
    for shards in old:
        if shards.name.encode() not in named:
            shutil.rmtree(shards, ignore_errors=True)


def with_shards(checkpoint: Path, content: dict[str, Any]) -> dict[str, Any]:
    """The content of a checkpoint with its tensors from the shards, if any, each in one piece on the CPU.

    Raises BadCheckpoint.
    """
    if not isinstance(content, dict) or SHARDS not in content:
        return content
    from torch.distributed.checkpoint import HuggingFaceStorageReader, load

    about = content.pop(SHARDS)
    if any(name in ("", "..") or Path(name).name != name for name in (about["folder"], *about["files"])):
        raise BadCheckpoint("damaged: it names shards in another folder")
    folder = checkpoint.parent / about["folder"]
    for name, record in about["files"].items():
        if not (folder / name).is_file():
            raise BadCheckpoint(f"damaged: {folder.name}/{name} next to it is missing")
        if _record(folder / name) != record:
            raise BadCheckpoint(f"damaged: {folder.name}/{name} has a wrong checksum")
    stored = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    tensors = {name: torch.empty(one.size, dtype=one.properties.dtype) for name, one in stored.items()}
    with warnings.catch_warnings():
        # Of the one process that reads, whether others have met or not.
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        load(tensors, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    return tree_map(lambda one: tensors[one[SHARD]] if _is_name(one) else one, content, is_leaf=_is_name)


def _is_name(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {SHARD}


def _record(file: Path) -> dict[str, int]:
    checksum = 0
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            checksum = zlib.crc32(block, checksum)
        return {"bytes": opened.tell(), "crc32": checksum}
