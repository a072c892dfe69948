"""Byte-level BPE, or characters: text to tokens, and tokens back to bytes and words.

No character is unknown, and the tokens of a text hold its UTF-8 bytes exactly: this makes bits per byte exact
and comparable between vocabularies. BPE is that of Sennrich et al. 2016 (arXiv:1508.07909), with the byte
alphabet and the splitting of GPT-2.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from zoo.errors import InputError, Problem, first_line
from zoo.files import atomic_write

# Where it is set, `tokenizers` gives no warning when data workers are forked after it has used its threads.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

END = "<|endoftext|>"
MASK = "<|mask|>"
SPECIAL = (END, MASK)
MASKS = (MASK, "[MASK]", "<mask>")
"""The token that hides a target, by its names in published tokenizers; the first that exists."""
ENDS = (END, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|im_end|>", "[SEP]")
"""The token that closes a document, by its names in published tokenizers; the first that exists."""
CHARACTERS = "characters"
"""Learned in place of BPE where `data.tokenizer` has this name."""
TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"
SPACE = "▁"  # of SentencePiece
WHITESPACE = b" \t\n\r\x0b\x0c"
PIECE = 1 << 15  # characters that one core tokenizes at a time
TOGETHER = 64 * PIECE  # characters tokenized at once: `tokenizers` takes some 100 bytes a token
COMPOSE = normalizers.NFC()
# What normalizers change: case, composition, accents, widths, ligatures, quotes, white space.
PROBE = f""" {"".join(map(chr, range(128)))}  \r\n\n``''\u201cq\u201d\u2026\u2014É e\u0301 x\u0301 \u212b
\ufb01 \u00b2 \uff21 \uff71 \u1100\u1161 戦\u00a0\u200b\ufeff🦊 """
SAFE_CUT = re.compile(r"(?<=[\w.,;:!?]\n)(?=\w)")

Item = TypeVar("Item")


class TextTokenizer:
    """Tokens of texts. `end_token` closes every document, if there is one; `mask_token` hides a target.

    `vocab_size` is the largest id plus 1: a vocabulary may have gaps. A learned one has fewer tokens than
    asked for where the text did not yield as many.

    Other tokenizers are byte-level (GPT-2, Llama 3, Qwen), or SentencePiece's with byte fallback (Llama 2,
    Mistral). Some put a space before a text; here none is put, so that the tokens of a text have its bytes
    wherever it is cut. The tokens of WordPiece (BERT) do not have them (`spells_text`).

    Args:
        end: the token that closes a document, where it is not the first of `ENDS`.

    Raises:
        ValueError: a tokenizer whose tokens do not have the bytes of a text, or whose normalizer changes the
            text other than by NFC; unless it is WordPiece.
    """

    def __init__(self, tokenizer: Tokenizer, end: str | None = None):
        self.spells_text = not isinstance(tokenizer.model, models.WordPiece)
        self.falls_back_to_bytes = tokenizer.token_to_id("<0x00>") is not None
        if self.falls_back_to_bytes:
            tokenizer = _without_prefix(tokenizer)
        elif isinstance(tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel):
            tokenizer.pre_tokenizer.add_prefix_space = False
        # Text that happens to spell a special token is text: it must cost its bytes like any other.
        tokenizer.encode_special_tokens = True
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.tokenizer = tokenizer
        usual = next((name for name in ENDS if tokenizer.token_to_id(name) is not None), None)
        self.own_end = None if end == usual else end
        if self.own_end is not None:
            tokenizer.add_special_tokens([end])  # without bytes of its own, as `transformers` reads it
        name = end or usual
        self.end_token: int | None = None if name is None else tokenizer.token_to_id(name)
        masks = (tokenizer.token_to_id(name) for name in MASKS)
        self.mask_token: int | None = next((one for one in masks if one is not None), None)
        self.vocab_size: int = max(tokenizer.get_vocab().values()) + 1
        # SentencePiece does not tell its mark of a space from a space.
        marks = self.falls_back_to_bytes and self.encode_short(SPACE) == self.encode_short(" ")
        self._space = " " if marks else SPACE
        self._token_bytes = self._find_token_bytes()
        self._composes = self.spells_text and self._probe()

    @property
    def start_token(self) -> str | None:
        """The token that the post-processor puts before a text, if any."""
        # A text that every tokenizer with these tokens has: the vocabulary may lack any given letter.
        text = next((raw.decode() for raw in self._token_bytes if raw.isalnum()), "")
        first = self.tokenizer.encode(text).ids[:1]
        return None if first == self.encode_short(text)[:1] else self.tokenizer.id_to_token(first[0])

    @property
    def fingerprint(self) -> str:
        """sha256 of the tokenizer as JSON, and of its own token for the end of a document."""
        return hashlib.sha256((self.tokenizer.to_str() + (self.own_end or "")).encode()).hexdigest()

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text, int64; no end token is added."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        """The same for many texts at once, on all cores, in memory for the tokens alone."""
        pieces: list[list[np.ndarray]] = [[] for _ in texts]
        numbered = ((number, piece) for number, text in enumerate(texts) for piece in cut(text, PIECE))
        for group in grouped(numbered, TOGETHER, lambda one: len(one[1])):
            encodings = self.tokenizer.encode_batch_fast(
                [piece for _, piece in group], add_special_tokens=False
            )
            for (number, _), encoding in zip(group, encodings, strict=True):
                pieces[number].append(np.asarray(encoding.ids, dtype=np.int64))
        return [np.concatenate(parts) if parts else np.zeros(0, np.int64) for parts in pieces]

    def encode_short(self, text: str) -> list[int]:
        """The same for a few words, on one core, which is faster for them."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; special tokens are spelled out, a partial character becomes U+FFFD."""
        return self.tokenizer.decode([int(token) for token in tokens], skip_special_tokens=False)

    def token_bytes(self) -> list[bytes]:
        """The bytes that each token stands for; none for the special ones. Of WordPiece those it shows."""
        return self._token_bytes

    def byte_count(self, text: str) -> int:
        """UTF-8 bytes of a text as the tokens hold it: some tokenizers compose Unicode characters first."""
        text = COMPOSE.normalize_str(text) if self._composes else text
        return len(text.replace(SPACE, self._space).encode())

    def _probe(self) -> bool:
        """Whether the normalizer composes characters (NFC).

        Raises ValueError where it changes a text otherwise, or where tokens have other bytes than their text.
        """
        normalizer, first = self.tokenizer.normalizer, self.tokenizer.pre_tokenizer
        text = normalizer.normalize_str(PROBE).replace(SPACE, " ") if normalizer else PROBE
        if text not in (PROBE, COMPOSE.normalize_str(PROBE)):
            message = "its normalizer changes the text, and bits per byte would be those of the changed text"
            raise ValueError(f"{message}: {normalizer}")
        # A vocabulary may lack bytes that its texts do not have.
        single = {raw[0] for raw in self._token_bytes if len(raw) == 1}
        held = "".join(one for one in text if single.issuperset(one.encode()))
        if b"".join(self._token_bytes[token] for token in self.encode_short(held)) != held.encode():
            model = type(self.tokenizer.model).__name__
            raise ValueError(f"its tokens do not spell the text: model {model}, pre-tokenizer {first}")
        return text != PROBE

    def _find_token_bytes(self) -> list[bytes]:
        # The byte alphabet of GPT-2: printable bytes are their own characters, others go from 256 on.
        printable = [byte for first, last in ("!~", "¡¬", "®ÿ") for byte in range(ord(first), ord(last) + 1)]
        others = [byte for byte in range(256) if byte not in printable]
        byte_of = {chr(byte): byte for byte in printable}
        byte_of |= {chr(256 + number): byte for number, byte in enumerate(others)}
        added = self.tokenizer.get_added_tokens_decoder()
        found = []
        for token in range(self.vocab_size):
            text = self.tokenizer.id_to_token(token)
            if text is None:  # a number that is not in use
                found.append(b"")
            elif self.falls_back_to_bytes and (byte := re.fullmatch("<0x([0-9A-F]{2})>", text)):
                found.append(bytes([int(byte[1], 16)]))
            elif token in added and added[token].special:
                found.append(b"")
            elif not self.spells_text:  # at least which tokens are words
                found.append(text.removeprefix("##").encode())
            elif token in added or self.falls_back_to_bytes:
                found.append(text.replace(SPACE, self._space).encode())
            else:
                try:
                    found.append(bytes(byte_of[character] for character in text))
                except KeyError as error:
                    message = f"neither byte-level nor with byte fallback: token {token} is {text!r}"
                    raise ValueError(message) from error
        return found

    def save(self, path: Path) -> None:
        """Write tokenizer.json, which `tokenizers` and `transformers` read too."""
        atomic_write(path, self.tokenizer.to_str(pretty=True))
        self.save_end(path.parent)

    def save_end(self, folder: Path) -> None:
        """Write tokenizer_config.json, where only that names the token that closes a document."""
        if self.own_end is not None:
            atomic_write(folder / CONFIG, json.dumps({"eos_token": self.own_end}))

    @classmethod
    def load(cls, path: Path) -> TextTokenizer:
        """Read what `save` wrote."""
        tokenizer = Tokenizer.from_file(str(path))
        return cls(tokenizer, _end_beside(path, tokenizer))


def _end_beside(path: Path, tokenizer: Tokenizer) -> str | None:
    """The token that closes a document, from the files of `transformers` next to a tokenizer.json."""
    for name, key in ((CONFIG, "eos_token"), ("generation_config.json", "eos_token_id"),
                      ("config.json", "eos_token_id")):  # fmt: skip
        file = path.with_name(name)
        end = json.loads(file.read_text(encoding="utf-8")).get(key) if file.is_file() else None
        end = end[0] if isinstance(end, list) and end else end
        end = end.get("content") if isinstance(end, dict) else end
        if isinstance(end, int):
            added = tokenizer.get_added_tokens_decoder().get(end)
            end = added.content if added is not None and added.special else None
        if isinstance(end, str) and tokenizer.token_to_id(end) is not None:
            return end
    return None


def _without_prefix(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer of SentencePiece that puts no space before a text."""
    content = json.loads(tokenizer.to_str())
    normalizer = content["normalizer"] or {}
    parts = normalizer.get("normalizers", [normalizer] if normalizer else [])
    kept = [part for part in parts if part["type"] != "Prepend"]
    content["normalizer"] = {"type": "Sequence", "normalizers": kept} if kept else None
    first = content["pre_tokenizer"] or {}
    for part in first.get("pretokenizers", [first]):
        if part.get("type") == "Metaspace":
            part["prepend_scheme"] = "never"
    return Tokenizer.from_str(json.dumps(content))


def open_tokenizer(path_or_id: str) -> TextTokenizer:
    """A tokenizer of the user: a tokenizer.json, a folder that has one, or a model of the hub.

    Raises:
        InputError: there is none, or it cannot be used.
    """
    path = Path(path_or_id)
    file = path / TOKENIZER if path.is_dir() else path
    try:
        if not path.exists() and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path_or_id):
            from huggingface_hub import hf_hub_download

            file = Path(hf_hub_download(path_or_id, TOKENIZER))
        if not file.is_file():
            raise FileNotFoundError("no such file")
        return TextTokenizer.load(file)
    except Exception as error:  # of the hub, the network and `tokenizers`: many kinds
        message = f"{file}: not a tokenizer that can be used: {first_line(error)}"
        raise InputError(Problem(message, key="data.tokenizer")) from error


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


def learn_characters(texts: Iterable[str], vocab_size: int) -> TextTokenizer:
    """A vocabulary of the characters of texts; of too many for `vocab_size`, the most frequent.

    Any other character is its UTF-8 bytes, which are tokens too.
    """
    names = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    counts = Counter(chain.from_iterable(texts))
    names += sorted(one for one, _ in counts.most_common(vocab_size - len(names)))
    vocabulary = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(list(SPECIAL))
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
        # One entry more than there are tokens, reached by index -1: targets that are not scored.
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
