"""Checkpoint files as Lightning's Trainer writes and reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from zoo.files import atomic_file
from zoo.runs.checkpoint_file import read_checkpoint


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside the old one, flushes and renames it: a kill leaves the old one or the new.

    Lightning's own goes through a temporary file that may lie on another disk, holds all of the checkpoint in
    memory once more, and does not flush.

    Args:
        content: that of the checkpoint to resume from, verified already: it is not read again.
    """

    def __init__(self, content: dict[str, Any] | None = None):
        self.content = content

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The content given, once, and then what `read_checkpoint` reads from the file."""
        content, self.content = self.content, None  # three times the model: nobody else may keep it
        return read_checkpoint(Path(path)) if content is None else content

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Raises DiskFull, or another OSError where it cannot be written; the old file is then as it was."""
        path = Path(path)
        path.parent.mkdir(exist_ok=True)  # not the run's folder: where that is gone, so is the run
        with atomic_file(path, _tensor_bytes(checkpoint)) as file:
            torch.save(checkpoint, file)


def _tensor_bytes(content: object) -> int:
    """Bytes of the tensors in a checkpoint; the rest of its file is small beside them."""
    if isinstance(content, torch.Tensor):
        return content.nbytes
    if isinstance(content, dict):
        return sum(map(_tensor_bytes, content.values()))
    return sum(map(_tensor_bytes, content)) if isinstance(content, list | tuple) else 0
