"""The token stream of a split, read from memory-mapped Arrow files without copying."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

COLUMN = "tokens"


class TokenStream:
    """All documents of a split one after the other, each closed by an end token.

    `stream[a:b]` is a numpy array (uint16 or int32) of the tokens a..b-1: a view of the file where they lie
    in one record batch, which is nearly always. `document_starts` holds where each document begins, int64.
    Reads the folder that `datasets.Dataset.save_to_disk` wrote; `datasets` itself, slow to import, is not
    needed. Raises ValueError or OSError for a folder that is incomplete.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self._open()

    def _open(self) -> None:
        pieces, lengths = [], []
        for file in data_files(self.folder):
            with pa.ipc.open_stream(pa.memory_map(str(file))) as reader:
                for batch in reader:
                    column = batch.column(COLUMN)
                    pieces.append(column.flatten().to_numpy(zero_copy_only=True))
                    lengths.append(np.diff(column.offsets.to_numpy()))
        self._pieces = [piece for piece in pieces if len(piece)]
        self._piece_starts = np.cumsum([0, *map(len, self._pieces)])
        ends = np.cumsum(np.concatenate(lengths), dtype=np.int64) if lengths else np.zeros(0, np.int64)
        self.document_starts = np.concatenate([ends[:0], np.zeros(min(1, len(ends)), np.int64), ends[:-1]])

    def __len__(self) -> int:
        return int(self._piece_starts[-1])

    def __getitem__(self, window: slice) -> np.ndarray:
        start, stop, step = window.indices(len(self))
        if step != 1:
            raise ValueError("a token stream is read without steps")
        first = int(np.searchsorted(self._piece_starts, start, side="right")) - 1
        parts = []
        while start < stop:
            begin = self._piece_starts[first]
            part = self._pieces[first][start - begin : stop - begin]
            parts.append(part)
            start += len(part)
            first += 1
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint16)

    def __getstate__(self) -> dict:
        # Data workers that are spawned map the files anew.
        return {"folder": self.folder}

    def __setstate__(self, state: dict) -> None:
        self.__init__(state["folder"])


def data_files(folder: Path) -> list[Path]:
    """The Arrow files of a saved dataset, in order. Raises ValueError or OSError."""
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    return [folder / file["filename"] for file in state["_data_files"]]
