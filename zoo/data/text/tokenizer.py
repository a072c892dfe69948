"""Byte-level BPE: text to tokens, and tokens back to bytes and words.

Byte-level, so that nothing is unknown and the tokens of a text hold its UTF-8 bytes exactly: this makes bits
per byte exact and comparable between vocabularies. Sennrich et al. 2016 (arXiv:1508.07909); the byte alphabet
and the splitting of GPT-2.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from zoo.files import atomic_write

# Where it is set, `tokenizers` gives no warning when data workers are forked after it has used its threads.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

END = "<|endoftext|>"
MASK = "<|mask|>"
SPECIAL = (END, MASK)
WHITESPACE = b" \t\n\r\x0b\x0c"
PIECE = 1 << 20  # characters tokenised at once: `tokenizers` takes some 100 bytes a token while it works
SAFE_CUT = re.compile(r"(?<=[\w.,;:!?]\n)(?=\w)")

Item = TypeVar("Item")


class TextTokenizer:
    """Tokens of texts. `end_token` closes every document; `mask_token` hides what is to be guessed."""

    def __init__(self, tokenizer: Tokenizer):
        # Text that happens to spell a special token is text: it must cost its bytes like any other.
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer
        self.end_token: int = tokenizer.token_to_id(END)
        self.mask_token: int = tokenizer.token_to_id(MASK)

    @property
    def vocab_size(self) -> int:
        """Tokens there are: what was asked for, or fewer if the text did not yield as many."""
        return self.tokenizer.get_vocab_size()

    @property
    def fingerprint(self) -> str:
        """sha256 of the tokenizer as JSON."""
        return hashlib.sha256(self.tokenizer.to_str().encode()).hexdigest()

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text, int64; no end token is added."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        """The same for many texts at once, on all cores; memory is that of the tokens, for any length."""
        pieces: list[list[np.ndarray]] = [[] for _ in texts]
        numbered = ((number, piece) for number, text in enumerate(texts) for piece in cut(text, PIECE))
        for group in grouped(numbered, PIECE, lambda one: len(one[1])):
            encodings = self.tokenizer.encode_batch_fast([piece for _, piece in group])
            for (number, _), encoding in zip(group, encodings, strict=True):
                pieces[number].append(np.asarray(encoding.ids, dtype=np.int64))
        return [np.concatenate(parts) if parts else np.zeros(0, np.int64) for parts in pieces]

    def encode_short(self, text: str) -> list[int]:
        """The same for a few words, on this core alone: for one line the others cost more than they save."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; special tokens are spelled out, a cut character becomes U+FFFD."""
        return self.tokenizer.decode([int(token) for token in tokens], skip_special_tokens=False)

    def token_bytes(self) -> list[bytes]:
        """The bytes that each token stands for; none for the special ones."""
        # The byte alphabet of GPT-2: printable bytes are their own characters, others go from 256 on.
        printable = [byte for first, last in ("!~", "¡¬", "®ÿ") for byte in range(ord(first), ord(last) + 1)]
        others = [byte for byte in range(256) if byte not in printable]
        byte_of = {chr(byte): byte for byte in printable}
        byte_of |= {chr(256 + number): byte for number, byte in enumerate(others)}
        special = {self.end_token, self.mask_token}
        return [
            b"" if token in special else bytes(byte_of[c] for c in self.tokenizer.id_to_token(token))
            for token in range(self.vocab_size)
        ]

    def save(self, path: Path) -> None:
        """Write tokenizer.json, which `tokenizers` and `transformers` read too."""
        atomic_write(path, self.tokenizer.to_str(pretty=True))

    @classmethod
    def load(cls, path: Path) -> TextTokenizer:
        """Read what `save` wrote."""
        return cls(Tokenizer.from_file(str(path)))


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> TextTokenizer:
    """Learn a vocabulary of `vocab_size` tokens, special ones included. The same texts give the same
    tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return TextTokenizer(tokenizer)


def cut(text: str, size: int) -> Iterator[str]:
    """A text in pieces of at least `size` characters, whose tokens joined are the tokens of the text."""
    start = 0
    while start < len(text):
        # A single end of line between words is a token of its own: nothing is merged across it.
        cut = SAFE_CUT.search(text, start + size)
        end = cut.start() if cut else len(text)
        yield text[start:end]
        start = end


def grouped(items: Iterable[Item], limit: int, size: Callable[[Item], int] = len) -> Iterator[list[Item]]:
    """Items in lists whose sizes add up to about `limit`."""
    group, total = [], 0
    for item in items:
        group.append(item)
        total += size(item)
        if total >= limit:
            yield group
            group, total = [], 0
    if group:
        yield group


class TextUnits:
    """Bytes and words in a stream of target tokens, so that losses can be given per byte and per word.

    A word is a run of bytes between ASCII white space. Where `newline_is_word` every end of line is one more,
    as WikiText counts. A word belongs to the token in which it begins. Special tokens and targets below zero
    (not scored) have no bytes and no words.
    """

    def __init__(self, token_bytes: list[bytes], newline_is_word: bool = False):
        # One entry more than there are tokens, reached by index -1: what is not scored.
        rows = [*token_bytes, b""]
        self._bytes = np.array([len(raw) for raw in rows])
        # Words that begin after the token's first byte, and lines that end in it.
        begun = [
            sum(one in WHITESPACE and two not in WHITESPACE for one, two in pairwise(raw))
            + newline_is_word * raw.count(b"\n")
            for raw in rows
        ]
        self._inside = np.array(begun)
        self._opens = np.array([bool(raw) and raw[0] not in WHITESPACE for raw in rows])
        # A special token (no bytes) parts words as white space does.
        self._parts = np.array([not raw or raw[-1] in WHITESPACE for raw in rows])

    def bytes_of(self, targets: np.ndarray) -> np.ndarray:
        """Bytes of each target, int64 of the same shape."""
        return self._bytes[np.maximum(targets, -1)]

    def words_of(self, targets: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """Words that begin in each target, int64 of the same shape; `previous` holds the token before each
        (below zero: there is none)."""
        targets, previous = np.maximum(targets, -1), np.maximum(previous, -1)
        return self._inside[targets] + (self._opens[targets] & self._parts[previous])
