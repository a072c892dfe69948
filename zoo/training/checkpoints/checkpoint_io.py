"""Checkpoint files as the Trainer writes and reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from zoo.files import atomic_file


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place, flushes it and renames it: a kill leaves the old one or the new.

    Lightning's own goes through a temporary file that may lie on another disk, holds the whole checkpoint in
    memory once more, and does not flush.
    """

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
