"""The token cache: a corpus is tokenized once, then mapped into memory.

A folder for each corpus and vocabulary, named by a hash of both. It holds tokenizer.json, the files of a
`TokenStream` for each split, and meta.json with the size of every other file. It is built under another
name and renamed, so that it is complete; a lock lets one process build while others wait.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers
from filelock import FileLock, Timeout
from tqdm import tqdm

from zoo.console import byte_bar, duration
from zoo.data.text import SPLITS, Corpus
from zoo.data.text.tokenizer import TOKENIZER, TextTokenizer, TextUnits, learn_characters, train_tokenizer
from zoo.data.text.tokens import TokenStream, write_split
from zoo.errors import InputError, Problem
from zoo.files import atomic_folder, atomic_write
from zoo.launch.ranks import is_first_process

FORMAT = 4
META = "meta.json"


@dataclass(frozen=True)
class TokenCache:
    """An opened cache folder. `corpus`, a hash of all documents, and `tokenizer.fingerprint` identify it.
    `about` is a line for the user."""

    folder: Path
    corpus: str
    tokenizer: TextTokenizer
    units: TextUnits
    streams: dict[str, TokenStream]
    split: str | None
    about: str = ""


def open_cache(
    open_corpus: Callable[[], Corpus],
    vocab_size: int,
    root: Path,
    tokenizer: TextTokenizer | None = None,
    build: bool = True,
    characters: bool = False,
) -> TokenCache | None:
    """The tokens of a corpus from the cache below `root`, built first where they are not there; None where
    they are not there and `build` is False.

    Args:
        open_corpus: opens the corpus; called again after a build, to detect a changed text.
        vocab_size: of the tokenizer that is learned if none is given.
        characters: they are learned instead of BPE.

    Raises:
        InputError: the corpus cannot be read or changed meanwhile, the cache cannot be written or is damaged.
    """
    corpus = open_corpus()
    learned = ["characters", vocab_size] if characters else vocab_size
    vocabulary = learned if tokenizer is None else tokenizer.fingerprint
    key = [FORMAT, corpus.identity, corpus.newline_is_word, vocabulary, tokenizers.__version__]
    folder = root / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
    if not folder.exists():
        if not build:
            return None
        try:
            root.mkdir(parents=True, exist_ok=True)
            with _acquired(FileLock(folder.with_suffix(".lock")), corpus.name):
                if not folder.exists():
                    _build(corpus, tokenizer or vocab_size, folder, open_corpus, characters)
        except OSError as error:
            message = (
                f"tokens cannot be stored there: {error.strerror or error}; make room, or name another "
                "folder with --set data.cache=FOLDER"
            )
            raise InputError(Problem(message, key="data.cache", where=str(root))) from error
    cache = read(folder)
    counts = {split: len(stream.document_starts) for split, stream in cache.streams.items()}
    files = f"{corpus.files:,} file{'s' * (corpus.files > 1)}, " if corpus.files else ""
    shares = [f"{count:,} {split}" for split, count in counts.items()] if counts["train"] else []
    divided = ", ".join([*shares, cache.split or corpus.rule])
    about = f"{corpus.name}: {files}{sum(counts.values()):,} documents: {divided}"
    return replace(cache, about=about)


def _acquired(lock: FileLock, name: str) -> Any:
    if not is_first_process():
        time.sleep(1)  # the first process is to build, since it shows its progress
        return lock.acquire()
    try:
        return lock.acquire(timeout=1)
    except Timeout:
        print(f"waiting for another process that tokenizes {name}", file=sys.stderr)
        return lock.acquire()


def _build(
    corpus: Corpus,
    vocabulary: int | TextTokenizer,
    folder: Path,
    open_corpus: Callable[[], Corpus],
    characters: bool,
) -> None:
    # Left by a process that was killed: this one has the lock.
    for left in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(left, ignore_errors=True)
    with atomic_folder(folder) as part:
        if isinstance(vocabulary, TextTokenizer):
            tokenizer = vocabulary
        else:
            with byte_bar(f"learning {vocabulary} tokens from {corpus.name}") as bar:
                learn = learn_characters if characters else train_tokenizer
                tokenizer = learn(_watched(corpus.documents("train"), bar), vocabulary)
        tokenizer.save(part / TOKENIZER)
        units = TextUnits(tokenizer.token_bytes(), corpus.newline_is_word)
        digest, new, began = hashlib.sha256(), 0, time.perf_counter()
        verb = "check" if corpus.index else "tokeniz"
        with byte_bar(f"{verb}ing {corpus.name}", corpus.size()) as bar:
            for split in SPLITS:
                digest.update(f"split {split}\n".encode())
                if corpus.index is not None:
                    new += corpus.index((split,), tokenizer, part / split, bar, digest)
                    continue
                documents = _watched(corpus.documents(split), bar, digest)
                new += write_split(documents, tokenizer, units, part / split)
        seconds = time.perf_counter() - began
        if is_first_process():
            rate = f"{new / seconds:,.0f} tokens per second"
            print(f"{verb}ed {corpus.name}: {new:,} tokens, {duration(seconds)}, {rate}", file=sys.stderr)
        if open_corpus().identity != corpus.identity:
            raise InputError(f"the text of {corpus.name} changed while it was read; run again")
        meta = {
            "name": corpus.name,
            "corpus": digest.hexdigest(),
            "vocab_size": tokenizer.vocab_size,
            "newline_is_word": corpus.newline_is_word,
            "split": corpus.split(),
        }
        write_meta(part, meta)


def _watched(documents: Iterable[str], bar: tqdm, digest: Any = None) -> Iterator[str]:
    """The documents; adds their bytes to a progress bar, and each to a digest."""
    for document in documents:
        raw = document.encode()
        if digest is not None:
            # The length before the text distinguishes "ab" + "c" from "a" + "bc".
            digest.update(f"{len(raw)}\n".encode() + raw)
        bar.update(len(raw))
        yield document


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Write meta.json of a cache folder, with the sizes of all other files."""
    files = [path for path in sorted(folder.iterdir()) if path.name != META]
    sizes = {path.name: path.stat().st_size for path in files}
    atomic_write(folder / META, json.dumps({**meta, "files": sizes}, indent=1) + "\n")


def read(folder: Path) -> TokenCache:
    """Open a cache folder. Raises InputError where a file is missing or has another size."""
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        for file, size in meta["files"].items():
            if (found := (folder / file).stat().st_size) != size:
                raise ValueError(f"{file} has {found} bytes and not {size}")
    except (OSError, ValueError) as error:
        message = f"the token cache is damaged: {error}; remove this folder to build it again from the corpus"
        raise InputError(Problem(message, where=str(folder))) from error
    tokenizer = TextTokenizer.load(folder / TOKENIZER)
    units = TextUnits(tokenizer.token_bytes(), meta["newline_is_word"])
    streams = {split: TokenStream(folder / split, tokenizer.vocab_size) for split in SPLITS}
    return TokenCache(folder, meta["corpus"], tokenizer, units, streams, meta["split"])
