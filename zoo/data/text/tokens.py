"""The tokens of a split on disk: raw integers, mapped into memory."""

from __future__ import annotations

import copy
import json
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.text.tokenizer import TextTokenizer, TextUnits, grouped
from zoo.errors import InputError, Problem
from zoo.files import raise_disk_full

BATCH = 4 << 20  # characters that are tokenized at once: bounds memory and feeds all cores
TOKENS, DOCUMENTS = ".tokens", ".documents.npy"
"""Names of the two files of a split: its tokens, and where each document begins (int64)."""
PARTS = ".parts.json"
"""In place of the tokens, where these are in files elsewhere: what `mapped` takes."""


def token_type(vocab_size: int) -> type[np.integer]:
    """The type of a token on disk."""
    return np.uint16 if vocab_size <= 1 << 16 else np.int32


def write_split(documents: Iterable[str], tokenizer: TextTokenizer, units: TextUnits, path: Path) -> int:
    """Tokenize documents into the files that `TokenStream(path)` reads; returns the number of tokens.

    Each document ends with an end token, if the tokenizer has one. Raises InputError where the tokens do not
    have the bytes of the text.
    """
    kind, ends = token_type(tokenizer.vocab_size), array("q", [0])
    with raise_disk_full(path), path.with_suffix(TOKENS).open("wb") as file:
        for texts in grouped(documents, BATCH):
            rows = tokenizer.encode_batch(texts)
            if tokenizer.end_token is not None:
                rows = [np.append(row, tokenizer.end_token) for row in rows]
            tokens = np.concatenate(rows)
            held = units.bytes_of(tokens).sum()
            if tokenizer.spells_text and held != sum(map(tokenizer.byte_count, texts)):
                message = "its tokens do not hold the bytes of their text"
                raise InputError(Problem(message, key="data.tokenizer"))
            file.write(tokens.astype(kind).tobytes())
            ends.extend(accumulate(map(len, rows), initial=ends.pop()))
    with raise_disk_full(path):
        np.save(path.with_suffix(DOCUMENTS), np.array(ends[:-1], np.int64))
    return ends[-1]


def mapped(parts: Sequence[Sequence[Any]], start: int = 0, stop: int = sys.maxsize) -> list[np.ndarray]:
    """The tokens from `start` to `stop` of parts of files, mapped into memory. A part is a path, a type, the
    offset of the first token in bytes, and the number of tokens."""
    arrays = [  # an empty file cannot be mapped
        np.asarray(np.memmap(*one[:2], "r", *one[2:])) if one[3] else np.zeros(0, one[1]) for one in parts
    ]
    return _between(arrays, start, stop) or [np.zeros(0, np.uint16)]


def _between(arrays: Sequence[np.ndarray], start: int, stop: int) -> list[np.ndarray]:
    begins = accumulate(map(len, arrays), initial=0)
    return [one[max(0, start - at) : max(0, stop - at)] for one, at in zip(arrays, begins, strict=False)]


class TokenStream:
    """All documents of a split one after the other.

    `stream[a:b]` is a read-only numpy view (uint16 or int32) of the mapped file; of files of others it has
    their type, and is a copy from several. `document_starts` holds the position of each document's first
    token, int64; no other place knows the borders of documents.
    """

    def __init__(self, path: Path, vocab_size: int):
        self.path, self.vocab_size = path, vocab_size
        self.document_starts = np.load(path.with_suffix(DOCUMENTS))
        file, kind, listed = path.with_suffix(TOKENS), token_type(vocab_size), path.with_suffix(PARTS)
        if listed.exists():
            self._arrays = mapped(*json.loads(listed.read_text(encoding="utf-8")))
        else:
            self._arrays = mapped([(file, kind, 0, file.stat().st_size // np.dtype(kind).itemsize)])
        self._size = sum(map(len, self._arrays))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, window: slice) -> np.ndarray:
        start, stop, _ = window.indices(self._size)
        found = _between(self._arrays, start, stop)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def document_begins(self, opened: bool) -> np.ndarray:
        """The position of each document's first input, int64.

        Where the next token is predicted, a document is `opened` by the end token of the one before: so its
        first token is predicted from that alone, and no target is lost.
        """
        return np.maximum(self.document_starts - int(opened), 0)

    def document_rows(self, start: int, stop: int, opened: bool = True) -> np.ndarray:
        """The row in which the document of each token in stream[start:stop] begins, int64 [stop-start].

        Documents that begin before the window begin in row 0.
        """
        begins = self.document_begins(opened)
        document = np.searchsorted(begins, np.arange(start, stop), side="right") - 1
        return np.maximum(begins[document] - start, 0)

    def beginnings(self, size: int, limit: int, end_token: int | None) -> TokenStream:
        """The documents that begin in the first `limit` tokens, each cut after `size` tokens and closed by
        `end_token`."""
        starts, end = self.document_starts, [] if end_token is None else [end_token]
        whole = np.diff(starts, append=len(self))
        kept = np.where(whole > size, size + len(end), whole)
        begins = np.cumsum(kept) - kept
        chosen = np.flatnonzero(begins < limit)
        made = copy.copy(self)
        made.document_starts = begins[chosen]
        parts = [self[starts[one] : starts[one] + min(size, whole[one])] for one in chosen]
        ends = [end if whole[one] > size else [] for one in chosen]
        pieces = [piece for pair in zip(parts, ends, strict=True) for piece in pair]
        made._arrays = [np.concatenate([self[:0], *pieces]).astype(self._arrays[0].dtype)]
        made._size = len(made._arrays[0])
        return made

    def __reduce__(self) -> tuple:
        # Spawned data workers map the file again, where numpy would copy it.
        return TokenStream, (self.path, self.vocab_size)
