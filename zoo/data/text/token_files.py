"""Tokens that others have written into `.bin` files, which are mapped into memory where they are.

A file is one of

- nanoGPT's: nothing but tokens, uint16, or uint32 where the vocabulary has more than 65,536;
- llm.c's and modded-nanogpt's: the same after 256 int32: a mark, a version, the number of tokens, zeros;
- Megatron's: beside an `.idx` file, which has the type of the tokens and the borders of documents.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from zoo.data.text import Corpus, stamp
from zoo.data.text.files import named_splits
from zoo.data.text.splits import NAMED
from zoo.data.text.tokenizer import TextTokenizer
from zoo.data.text.tokens import DOCUMENTS, PARTS, mapped, token_type
from zoo.errors import InputError, Problem

HEADER, HEADERS = 1024, {(20240520, 1): "uint16", (20240801, 7): "uint32"}
INDEX, MAGIC = struct.Struct("<9sQBQQ"), b"MMIDIDX\x00\x00"
TYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
CHUNK = 1 << 24  # tokens that are checked at once


def open_token_files(root: Path, valid_tokens: int = 0) -> Corpus:
    """The files in a folder, or one file, also without its `.bin`, as a corpus that is in tokens.

    At least `valid_tokens` of the end of train are for validation, if not 0. `index` raises InputError for
    files that are missing or damaged, or have other tokens than the tokenizer.
    """
    root = next((one for one in (root, Path(f"{root}.bin")) if one.exists()), root)
    paths = [root] if root.is_file() else sorted(root.rglob("*.bin"))
    if not paths:
        raise _refused(root, "no file of tokens (.bin) is there")
    files = (root.is_dir() and named_splits(root, paths)) or {"train": paths}

    def index(splits: Sequence[str], tokenizer: TextTokenizer, path: Path, bar: tqdm, digest: Any) -> int:
        one = splits[0] if len(splits) == 1 else ""
        if one and ("train" not in files or ("valid" in files) == (valid_tokens > 0)):
            message = f"has files for {' and '.join(files)}, and needs train and valid (val) in their names"
            raise _refused(root, f"{message}, or train alone and data.valid_tokens, to validate on its end")
        cut = valid_tokens > 0 and one in ("train", "valid")
        chosen = [file for split in (["train"] if cut else splits) for file in files.get(split, ())]
        parts, starts = _checked(chosen, tokenizer, bar, digest)
        begin, end = 0, sum(count for *_, count in parts)
        if parts and not end:
            raise _refused(root, "holds no tokens")
        if cut:
            border = int(starts[starts <= end - valid_tokens][-1:].sum())
            if not border:
                raise _refused(root, f"data.valid_tokens leaves none of {len(starts):,} documents to train")
            begin, end = (0, border) if one == "train" else (border, end)
        starts = starts[(starts >= begin) & (starts < end)] - begin
        digest.update(f"{begin} {end}\n".encode() + starts.tobytes())
        path.with_suffix(PARTS).write_text(json.dumps([parts, begin, end]), encoding="utf-8")
        np.save(path.with_suffix(DOCUMENTS), starts)
        return end - begin

    stamps = [stamp(one) for path in paths for one in (path, path.with_suffix(".idx")) if one.exists()]
    rule = f"valid from {valid_tokens:,} tokens before the end of train" if valid_tokens else NAMED
    identity = ["tokens", valid_tokens, str(root.resolve()), *stamps]
    size = sum(path.stat().st_size for path in paths)
    about = {"split": lambda: rule, "size": lambda: size, "files": len(paths), "index": index}
    return Corpus("tokens", identity, lambda split: iter(()), **about)


def _checked(
    files: Iterable[Path], tokenizer: TextTokenizer, bar: tqdm, digest: Any
) -> tuple[list[list], np.ndarray]:
    """The parts of a `TokenStream`, and where documents begin, int64; adds the tokens to a digest.

    Without an index a document begins after the end token of the one before; end tokens alone are none.
    """
    parts, found, position = [], [np.zeros(0, np.int64)], 0
    end = before = -1 if tokenizer.end_token is None else tokenizer.end_token
    for path in files:
        part, indexed = _layout(path, tokenizer)
        parts.append(part)
        (tokens,) = mapped([part])
        for start in range(0, len(tokens), CHUNK):
            some = tokens[start : start + CHUNK].astype(np.int64)
            wrong = (some < 0) | (some >= tokenizer.vocab_size)
            if wrong.any():
                token = f"token {start + wrong.argmax():,} is {some[wrong.argmax()]}"
                raise _refused(path, f"{token}, and data.tokenizer has {tokenizer.vocab_size:,} tokens")
            ended = np.append(before, some) == end
            begins = np.flatnonzero(ended[:-1] & ~ended[1:])
            if indexed is not None:
                begins = indexed[(indexed >= start) & (indexed < start + CHUNK)] - start
                if end >= 0 and not ended[begins].all():
                    message = f"documents of its index do not end with token {end}, as data.tokenizer has it"
                    raise _refused(path, f"{message}; write the data set with --append-eod")
            digest.update(some.astype("<u4").tobytes())
            found.append(position + begins)
            position, before = position + len(some), some[-1]
            bar.update(len(some) * tokens.itemsize)
    # End tokens that open the first document are its own.
    return parts, np.append(0, np.concatenate(found)[1:])[:position]


def _layout(path: Path, tokenizer: TextTokenizer) -> tuple[list, np.ndarray | None]:
    """A file as a part of `mapped`, and where its documents begin if it has an index."""
    size, index, offset, indexed = path.stat().st_size, path.with_suffix(".idx"), 0, None
    head = tuple(np.fromfile(path, "<i4", HEADER // 4).tolist())
    if index.exists():
        kind, count, indexed = _read_index(index)
    elif head[:2] in HEADERS and len(head) == HEADER // 4:
        kind, count, offset = HEADERS[head[:2]], head[2], HEADER
    else:
        kind = "uint16" if token_type(tokenizer.vocab_size) is np.uint16 else "uint32"
        count = size // np.dtype(kind).itemsize
        if kind == "uint16" and len(head) > 8 and all(0 <= one < 1 << 16 for one in head):
            raise _refused(path, "every second token is 0: write its tokens as uint16, not as uint32")
    width = np.dtype(kind).itemsize
    if size != offset + width * count:
        source = f" by {index.name}" if index.exists() else " by its header" if offset else ""
        message = f"has {size - offset:,} bytes for {count:,} tokens of {width} bytes{source}"
        raise _refused(path, f"{message}: it is incomplete, or of another kind")
    return [str(path.resolve()), kind, offset, count], indexed


def _read_index(path: Path) -> tuple[str, int, np.ndarray]:
    """The type and the number of tokens in an indexed file of Megatron, and where its documents begin."""
    raw, magic = path.read_bytes(), b""
    try:
        magic, version, code, count, borders = INDEX.unpack_from(raw)
        sizes = np.frombuffer(raw, "<i4", count, INDEX.size).astype(np.int64)
        firsts = np.frombuffer(raw, "<i8", borders, INDEX.size + 12 * count)
    except (struct.error, ValueError):
        magic = b""
    if magic != MAGIC or version != 1 or code not in TYPES:
        raise _refused(path, "is no index of Megatron (MMIDIDX, version 1, of integers), or not all of it")
    begins = np.cumsum(sizes) - sizes
    return TYPES[code], int(sizes.sum()), np.unique(begins[firsts[firsts < count]])


def _refused(path: Path, message: str) -> InputError:
    return InputError(Problem(message, key="data.root", where=str(path)))
