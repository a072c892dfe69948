"""The tokens of a split on disk: raw integers, mapped into memory."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

import numpy as np

from zoo.data.text.tokenizer import TextTokenizer, TextUnits, grouped
from zoo.errors import InputError, Problem
from zoo.files import raise_disk_full

BATCH = 4 << 20  # characters that are tokenized at once: bounds memory and feeds all cores
TOKENS, DOCUMENTS = ".tokens", ".documents.npy"
"""Names of the two files of a split: its tokens, and where each document begins (int64)."""


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


class TokenStream:
    """All documents of a split one after the other.

    `stream[a:b]` is a read-only numpy view (uint16 or int32) of the mapped file. `document_starts` holds the
    position of each document's first token, int64; no other place knows the borders of documents.
    """

    def __init__(self, path: Path, vocab_size: int):
        self.path, self.vocab_size = path, vocab_size
        self.document_starts = np.load(path.with_suffix(DOCUMENTS))
        file, kind = path.with_suffix(TOKENS), token_type(vocab_size)
        # An empty file cannot be mapped.
        self._tokens = np.asarray(np.memmap(file, kind, "r")) if file.stat().st_size else np.zeros(0, kind)

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, window: slice) -> np.ndarray:
        return self._tokens[window]

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
        made._tokens = np.concatenate([self[:0], *pieces]).astype(self._tokens.dtype)
        return made

    def __reduce__(self) -> tuple:
        # Spawned data workers map the file again, where numpy would copy it.
        return TokenStream, (self.path, self.vocab_size)
