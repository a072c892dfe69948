"""From a corpus to the files of a token cache."""

from __future__ import annotations

import importlib.util
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from zoo.data.text.checksums import checksums
from zoo.data.text.corpus import SPLITS, Contents, Corpus, Digest, TextChanged
from zoo.data.text.tokenizer import TextTokenizer, TextUnits, train_tokenizer
from zoo.errors import InputError
from zoo.files import raise_disk_full, atomic_write
from zoo.console import progress_bar

FORMAT = 2
META = "meta.json"
META_CRC = "meta.json.crc32"
TOKENIZER = "tokenizer.json"
BATCH_BYTES = 4 << 20  # text tokenised at once: bounds memory, feeds all cores


def build(corpus: Corpus, contents: Contents, vocab_size: int, folder: Path) -> None:
    """Learn the tokenizer on the training split and write all splits into a new folder.

    Raises InputError for a corpus that cannot be read, or is not `contents` any more, and OSError where it
    cannot be written.
    """
    if importlib.util.find_spec("datasets") is None:
        raise InputError("tokenising a corpus needs the package `datasets`: pip install datasets")
    folder.mkdir()
    with progress(f"learning {vocab_size} tokens from {corpus.name}", contents.bytes["train"]) as advance:
        tokenizer = train_tokenizer(watched(corpus.documents("train"), advance), vocab_size)
    tokenizer.save(folder / TOKENIZER)
    units = TextUnits(tokenizer.token_bytes(), corpus.newline_is_word)
    splits, digest = {}, Digest()
    with progress(f"tokenising {corpus.name}", sum(contents.bytes.values())) as advance:
        for split in SPLITS:
            documents = watched(digest.of(split, corpus.documents(split)), advance)
            splits[split] = write_split(documents, tokenizer, units, folder / split)
    if digest.contents() != contents:
        raise TextChanged(f"the text of {corpus.name} changed while it was read; run again")
    write_meta(
        folder,
        {
            "format": FORMAT,
            "name": corpus.name,
            "corpus": contents.fingerprint,
            "tokenizer": tokenizer.fingerprint,
            "tokenizers": tokenizers.__version__,
            "vocab_size": tokenizer.vocab_size,
            "newline_is_word": corpus.newline_is_word,
            "splits": splits,
            "files": checksums(folder),
        },
    )


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Write meta.json, and beside it its own checksum: all other checksums stand in it."""
    raw = (json.dumps(meta, indent=1) + "\n").encode()
    atomic_write(folder / META, raw)
    atomic_write(folder / META_CRC, meta_crc(raw))


def meta_crc(raw: bytes) -> bytes:
    """The content of meta.json.crc32 for a meta.json of this content."""
    return f"{zlib.crc32(raw):08x}\n".encode()


def write_split(
    documents: Iterator[str], tokenizer: TextTokenizer, units: TextUnits, folder: Path
) -> dict[str, int]:
    """Tokenise documents into a saved dataset; its totals."""
    import datasets
    import pyarrow as pa

    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.int32
    features = datasets.Features(
        tokens=datasets.Sequence(datasets.Value(np.dtype(dtype).name)),
        bytes=datasets.Value("int64"),
        words=datasets.Value("int64"),
    )
    schema = features.arrow_schema
    totals = {"documents": 0, "tokens": 0, "bytes": 0, "words": 0}
    draft = folder.with_suffix(".arrow")
    with (
        raise_disk_full(draft),
        pa.OSFile(str(draft), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as writer,
    ):
        for texts in batches(documents, BATCH_BYTES):
            rows = [np.append(tokens, tokenizer.end_token) for tokens in tokenizer.encode_batch(texts)]
            flat = np.concatenate(rows)
            sizes = np.array([len(text.encode()) for text in texts], dtype=np.int64)
            starts = np.cumsum([0, *map(len, rows)])
            previous = np.append(tokenizer.end_token, flat[:-1])
            words = np.add.reduceat(units.words_of(flat, previous), starts[:-1])
            counted = np.add.reduceat(units.bytes_of(flat, previous), starts[:-1])
            assert (counted == sizes).all(), "tokens do not hold the bytes of their text"
            values = pa.array(flat.astype(dtype))
            column = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values)
            arrays = [column.cast(schema.field("tokens").type), pa.array(sizes), pa.array(words)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            for name, count in zip(totals, (len(rows), len(flat), sizes.sum(), words.sum()), strict=True):
                totals[name] += int(count)
    with quiet_datasets(), raise_disk_full(folder, draft.stat().st_size):
        datasets.Dataset.from_file(str(draft)).save_to_disk(str(folder))
    draft.unlink()
    return totals


def batches(documents: Iterator[str], limit: int) -> Iterator[list[str]]:
    """Documents in lists of about `limit` characters."""
    texts, size = [], 0
    for text in documents:
        texts.append(text)
        size += len(text)
        if size >= limit:
            yield texts
            texts, size = [], 0
    if texts:
        yield texts


def watched(documents: Iterator[str], advance: Callable[[int], None]) -> Iterator[str]:
    """The same documents, their bytes counted by a progress bar."""
    for document in documents:
        yield document
        advance(len(document.encode()))


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that counts bytes and goes away when done."""
    with progress_bar(total, label, "B", unit_scale=True, unit_divisor=1024, leave=False) as bar:
        yield bar.update


@contextmanager
def quiet_datasets() -> Iterator[None]:
    """Without the bars of `datasets`: ours shows it already."""
    import datasets

    shown = datasets.are_progress_bars_disabled() is False
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()
