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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from filelock import FileLock, Timeout
from tqdm import tqdm

from zoo.console import byte_bar
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
    """An opened cache folder. `corpus`, a hash of all documents, and `tokenizer.fingerprint` identify it."""

    folder: Path
    corpus: str
    tokenizer: TextTokenizer
    units: TextUnits
    streams: dict[str, TokenStream]
    split: str | None


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
    return read(folder)


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
    for stale in folder.parent.glob(f".{folder.name}.*"):  # of a process that was killed
        shutil.rmtree(stale)
    with atomic_folder(folder) as part:
        if isinstance(vocabulary, TextTokenizer):
            tokenizer = vocabulary
        else:
            with byte_bar(f"learning {vocabulary} tokens from {corpus.name}") as bar:
                documents = _documents(corpus, "train", hashlib.sha256(), bar)
                learn = learn_characters if characters else train_tokenizer
                tokenizer = learn(documents, vocabulary)
        tokenizer.save(part / TOKENIZER)
        units = TextUnits(tokenizer.token_bytes(), corpus.newline_is_word)
        digest = hashlib.sha256()
        with byte_bar(f"tokenizing {corpus.name}") as bar:
            for split in SPLITS:
                write_split(_documents(corpus, split, digest, bar), tokenizer, units, part / split)
        if open_corpus().identity != corpus.identity:
            raise InputError(f"the text of {corpus.name} changed while it was read; run again")
        meta = {
            "format": FORMAT,
            "name": corpus.name,
            "corpus": digest.hexdigest(),
            "tokenizer": tokenizer.fingerprint,
            "tokenizers": tokenizers.__version__,
            "vocab_size": tokenizer.vocab_size,
            "newline_is_word": corpus.newline_is_word,
            "split": corpus.split(),
        }
        write_meta(part, meta)


def _documents(corpus: Corpus, split: str, digest: Any, bar: tqdm) -> Iterator[str]:
    """The documents of a split; adds them to a digest and their bytes to a progress bar."""
    digest.update(f"split {split}\n".encode())
    for document in corpus.documents(split):
        raw = document.encode()
        # The length before the text distinguishes "ab" + "c" from "a" + "bc".
        digest.update(f"{len(raw)}\n".encode() + raw)
        bar.update(len(raw))
        yield document


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Write meta.json of a cache folder, with the sizes of all other files."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.name != META}
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
