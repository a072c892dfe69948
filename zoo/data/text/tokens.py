"""The tokens of a split on disk: written once as a saved `datasets.Dataset`, then mapped into memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from zoo.data.text.tokenizer import TextTokenizer, TextUnits, grouped
from zoo.errors import InputError, Problem
from zoo.files import raise_disk_full

COLUMN = "tokens"
BATCH = 4 << 20  # characters tokenised at once: bounds memory, feeds all cores


def write_split(documents: Iterable[str], tokenizer: TextTokenizer, units: TextUnits, folder: Path) -> None:
    """Tokenise documents into a folder that `datasets.load_from_disk` opens.

    A row is a document: its tokens with an end token, if the tokenizer has one, its bytes and words.
    """
    import datasets

    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.int32
    features = datasets.Features(
        tokens=datasets.Sequence(datasets.Value(np.dtype(dtype).name)),
        bytes=datasets.Value("int64"),
        words=datasets.Value("int64"),
    )
    schema = features.arrow_schema
    draft = folder.with_suffix(".arrow")
    with (
        raise_disk_full(draft),
        pa.OSFile(str(draft), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as writer,
    ):
        for texts in grouped(documents, BATCH):
            rows = tokenizer.encode_batch(texts)
            if tokenizer.end_token is not None:
                rows = [np.append(tokens, tokenizer.end_token) for tokens in rows]
            flat = np.concatenate(rows)
            starts = np.cumsum([0, *map(len, rows)])
            of_tokens = units.words_of(flat, np.append(-1, flat[:-1])), units.bytes_of(flat)
            words, counted = (np.diff(np.append(0, np.cumsum(values))[starts]) for values in of_tokens)
            sizes = np.array([tokenizer.byte_count(text) for text in texts])
            if (counted != sizes).any():
                raise InputError(
                    Problem("its tokens do not hold the bytes of their text", key="data.tokenizer")
                )
            column = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(flat.astype(dtype)))
            arrays = [column.cast(schema.field(COLUMN).type), pa.array(sizes), pa.array(words)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
    with raise_disk_full(folder, draft.stat().st_size):
        datasets.Dataset.from_file(str(draft)).save_to_disk(str(folder))
    draft.unlink()


class TokenStream:
    """All documents of a split one after the other, each closed by an end token.

    `stream[a:b]` is a numpy array (uint16 or int32) of the tokens a..b-1: a view of the file where they lie
    in one record batch, which is nearly always. `document_starts` holds where each document begins, int64.
    Reads the folder that `write_split` wrote; `datasets` itself, slow to import, is not needed.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        pieces, lengths = [], []
        for file in data_files(self.folder):
            with pa.ipc.open_stream(pa.memory_map(str(file))) as reader:
                for batch in reader:
                    column = batch.column(COLUMN)
                    # Views, as of `to_numpy`, which would import pandas first.
                    pieces.append(np.from_dlpack(column.flatten()))
                    lengths.append(np.diff(np.from_dlpack(column.offsets)))
        self._pieces = [piece for piece in pieces if len(piece)]
        self._piece_starts = np.cumsum([0, *map(len, self._pieces)])
        bounds = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
        self.document_starts = bounds[:-1]

    def __len__(self) -> int:
        return int(self._piece_starts[-1])

    def __getitem__(self, window: slice) -> np.ndarray:
        start, stop, step = window.indices(len(self))
        if step != 1:
            raise ValueError("a token stream is read without steps")
        number = int(np.searchsorted(self._piece_starts, start, side="right")) - 1
        parts = []
        while start < stop:
            begin = self._piece_starts[number]
            parts.append(self._pieces[number][start - begin : stop - begin])
            start += len(parts[-1])
            number += 1
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint16)

    def __reduce__(self) -> tuple:
        # Data workers that are spawned map the files anew.
        return TokenStream, (self.folder,)


def data_files(folder: Path) -> list[Path]:
    """The Arrow files of a saved dataset, in order."""
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    return [folder / file["filename"] for file in state["_data_files"]]
