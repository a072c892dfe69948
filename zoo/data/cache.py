"""The token cache: a corpus is tokenised once, and then only mapped.

A folder per (text, vocabulary size, versions), named by their hash, with tokenizer.json, a
`datasets.Dataset` for each split (columns tokens, bytes, words; a row is a document) and meta.json. It is
built beside its place and renamed, so that a folder of that name is whole; a lock lets one process build
while the others wait.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers

from zoo.data.corpus import SPLITS, Contents, Corpus, survey
from zoo.data.tokenizer import TextTokenizer, TextUnits, train_tokenizer
from zoo.data.tokens import TokenStream, data_files
from zoo.errors import InputError, Problem
from zoo.progress import progress_bar

FORMAT = 1
BATCH_BYTES = 4 << 20  # text tokenised at once: bounds memory, feeds all cores


@dataclass(frozen=True)
class TokenCache:
    """An opened cache folder. `corpus` and `tokenizer.fingerprint` tell what it was made of."""

    folder: Path
    corpus: str
    tokenizer: TextTokenizer
    units: TextUnits
    streams: dict[str, TokenStream]


class Damaged(Exception):
    """A cache folder is not what its meta.json says."""


def open_cache(corpus: Corpus, vocab_size: int, root: Path) -> TokenCache:
    """The tokens of a corpus, from the cache below `root` or made and put there.

    Raises InputError for a corpus that cannot be read, and for a cache folder that cannot be written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        contents = remembered(corpus, root)
        folder = root / key_of(corpus, contents, vocab_size)
        if (cache := read_or_note(folder)) is None:
            cache = build_alone(corpus, contents, vocab_size, folder)
        return cache
    except OSError as error:
        raise InputError(
            Problem(
                f"cannot keep tokens there: {error.strerror or error}; "
                "name a folder that can be written with --set data.cache=FOLDER",
                key="data.cache",
                where=str(root),
            )
        ) from error


def key_of(corpus: Corpus, contents: Contents, vocab_size: int) -> str:
    """The name of the cache folder: a hash of all that decides what is in it."""
    parts = [FORMAT, contents.fingerprint, corpus.newline_is_word, vocab_size, tokenizers.__version__]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def remembered(corpus: Corpus, root: Path) -> Contents:
    """The corpus's contents; not read again if it was surveyed before and its files are the same."""
    name = hashlib.sha256(json.dumps(corpus.identity).encode()).hexdigest()[:24]
    note = root / "surveys" / f"{name}.json"
    try:
        known = json.loads(note.read_text(encoding="utf-8"))
        return Contents(str(known["fingerprint"]), {split: int(known["bytes"][split]) for split in SPLITS})
    except (OSError, ValueError, KeyError, TypeError):
        pass  # never surveyed, or a note that cannot be read: survey it
    with progress(f"reading {corpus.name}", None) as advance:
        contents = survey(corpus, advance)
    note.parent.mkdir(exist_ok=True)
    beside = note.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps({"fingerprint": contents.fingerprint, "bytes": contents.bytes}))
    beside.replace(note)
    return contents


def build_alone(corpus: Corpus, contents: Contents, vocab_size: int, folder: Path) -> TokenCache:
    """Build the folder unless another process has done so by the time the lock is ours."""
    with sole_builder(folder.with_suffix(".lock"), corpus.name):
        if folder.exists():
            try:
                return read(folder)
            except Damaged:
                shutil.rmtree(folder)
        # We hold the lock: what lies beside is left over from a process that was killed.
        for stale in folder.parent.glob(f"{folder.name}.part-*"):
            shutil.rmtree(stale)
        part = folder.with_name(f"{folder.name}.part-{os.getpid()}")
        try:
            build(corpus, contents, vocab_size, part)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        try:
            return read(folder)
        except Damaged as error:
            raise InputError(
                Problem(f"the tokens just written are damaged: {error}", where=str(folder))
            ) from None


@contextmanager
def sole_builder(lock_file: Path, name: str) -> Iterator[None]:
    """Hold the lock; say so if another process must be waited for."""
    from filelock import FileLock, Timeout

    lock = FileLock(lock_file)
    try:
        lock.acquire(timeout=1)
    except Timeout:
        print(f"waiting for another process that tokenises {name}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def build(corpus: Corpus, contents: Contents, vocab_size: int, folder: Path) -> None:
    """Learn the tokenizer on the training split and write all splits into a new folder."""
    if importlib.util.find_spec("datasets") is None:
        raise InputError("tokenising a corpus needs the package `datasets`: pip install datasets")
    folder.mkdir()
    with progress(f"learning {vocab_size} tokens from {corpus.name}", contents.bytes["train"]) as advance:
        tokenizer = train_tokenizer(watched(corpus.documents("train"), advance), vocab_size)
    tokenizer.save(folder / "tokenizer.json")
    units = TextUnits(tokenizer.token_bytes(), corpus.newline_is_word)
    splits = {}
    with progress(f"tokenising {corpus.name}", sum(contents.bytes.values())) as advance:
        for split in SPLITS:
            documents = watched(corpus.documents(split), advance)
            totals = write_split(documents, tokenizer, units, folder / split)
            if totals["bytes"] != contents.bytes[split]:
                raise InputError(f"the text of {corpus.name} changed while it was read; run again")
            splits[split] = totals
    meta = {
        "format": FORMAT,
        "name": corpus.name,
        "corpus": contents.fingerprint,
        "tokenizer": tokenizer.fingerprint,
        "tokenizers": tokenizers.__version__,
        "vocab_size": tokenizer.vocab_size,
        "newline_is_word": corpus.newline_is_word,
        "splits": splits,
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")


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
    with pa.OSFile(str(draft), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for texts in batches(documents, BATCH_BYTES):
            rows = [np.append(tokens, tokenizer.end_token) for tokens in tokenizer.encode_batch(texts)]
            flat = np.concatenate(rows)
            sizes = np.array([len(text.encode()) for text in texts], dtype=np.int64)
            starts = np.cumsum([0, *map(len, rows)])
            previous = np.append(tokenizer.end_token, flat[:-1])
            words = np.add.reduceat(units.words_of(flat, previous), starts[:-1])
            told = np.add.reduceat(units.bytes_of(flat, previous), starts[:-1])
            assert (told == sizes).all(), "tokens do not hold the bytes of their text"
            values = pa.array(flat.astype(dtype))
            column = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values)
            arrays = [column.cast(schema.field("tokens").type), pa.array(sizes), pa.array(words)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            for name, count in zip(totals, (len(rows), len(flat), sizes.sum(), words.sum()), strict=True):
                totals[name] += int(count)
    with quiet_datasets():
        datasets.Dataset.from_file(str(draft)).save_to_disk(str(folder))
    draft.unlink()
    files = {file.name: file.stat().st_size for file in data_files(folder)}
    return totals | {"files": files}


def read_or_note(folder: Path) -> TokenCache | None:
    """The folder's contents; None, with a line on stderr, if it is damaged; None if there is none."""
    if not folder.exists():
        return None
    try:
        return read(folder)
    except Damaged as error:
        print(f"the token cache {folder} is damaged ({error}); making it again", file=sys.stderr)
        return None


def read(folder: Path) -> TokenCache:
    """Open a cache folder and compare it with its meta.json. Raises Damaged."""
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        tokenizer = TextTokenizer.load(folder / "tokenizer.json")
        if tokenizer.fingerprint != meta["tokenizer"]:
            raise Damaged("tokenizer.json is another")
        streams = {}
        for split in SPLITS:
            told = meta["splits"][split]
            for name, size in told["files"].items():
                if (folder / split / name).stat().st_size != size:
                    raise Damaged(f"{split}/{name} has another size")
            streams[split] = TokenStream(folder / split)
            if len(streams[split]) != told["tokens"]:
                raise Damaged(f"{split} has {len(streams[split])} tokens and not {told['tokens']}")
        units = TextUnits(tokenizer.token_bytes(), meta["newline_is_word"])
        return TokenCache(folder, meta["corpus"], tokenizer, units, streams)
    except FileNotFoundError as error:
        raise Damaged(f"{Path(error.filename or '').name} is missing") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise Damaged(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


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
    """The same documents, their bytes told to a progress bar."""
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
    """Without the bars of `datasets`: ours has told the time already."""
    import datasets

    shown = datasets.are_progress_bars_disabled() is False
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()
