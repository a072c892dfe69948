"""The token cache: a corpus is tokenised once, and then only mapped.

A folder per (text, vocabulary size, versions), named by their hash, with tokenizer.json, a
`datasets.Dataset` for each split (columns tokens, bytes, words; a row is a document) and meta.json, which has
size and CRC-32 of every file. It is built beside its final path, flushed and renamed, so that a folder of
that name is complete; a lock lets one process build while the others wait. A folder that is not as it was
written is neither used nor removed: an error names it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import tokenizers
from filelock import FileLock, Timeout
from tqdm import tqdm

from zoo.console import progress_bar
from zoo.data.text import SPLITS, Contents, Corpus, TextChanged, digested, survey
from zoo.data.text.tokenizer import TextTokenizer, TextUnits, train_tokenizer
from zoo.data.text.tokens import TokenStream, write_split
from zoo.errors import InputError, Problem
from zoo.files import atomic_write, fsync_folder, fsync_tree, full_disk_message, is_disk_full
from zoo.launch.signals import signals_deferred

FORMAT = 2
META = "meta.json"
TOKENIZER = "tokenizer.json"
# A write within one tick of the file system's clock leaves a file's times as they are: only what has been
# left alone for a while can be known by them.
SETTLED = 2_000_000_000  # nanoseconds

Found = TypeVar("Found")


class Damaged(Exception):
    """A file is not what was written; says which, and in what."""


@dataclass(frozen=True)
class TokenCache:
    """An opened cache folder. `corpus` and `tokenizer.fingerprint` identify what it was made of."""

    folder: Path
    corpus: str
    tokenizer: TextTokenizer
    units: TextUnits
    streams: dict[str, TokenStream]
    split: str | None = None


def open_cache(
    corpus: Corpus,
    vocab_size: int,
    root: Path,
    own: Path | None = None,
    tokenizer: TextTokenizer | None = None,
) -> TokenCache:
    """The tokens of a corpus, from the cache below `root` or made and put there.

    Args:
        vocab_size: of the tokenizer that is learned where none is given.
        own: another cache, in which all is written; `root` is then only read. For a `root` that only a
            checkpoint names: whoever made that does not decide where files come to be.

    Raises:
        InputError: the corpus cannot be read, the cache cannot be written, or it is damaged.
    """
    written = own or root
    note = written / "surveys" / f"{_hash(corpus.identity)}.json"
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        contents = remembered(corpus, note)
        vocabulary = vocab_size if tokenizer is None else tokenizer.fingerprint
        key = _hash(
            [FORMAT, contents.fingerprint, corpus.newline_is_word, vocabulary, tokenizers.__version__]
        )
        if own and (folder := root / key).is_dir():
            return read(
                folder, corpus.name, own / "surveys" / f"{_hash([str(folder.resolve())])}.verified.json"
            )
        folder = written / key
        try:
            _by_one_process(
                folder,
                f"tokenises {corpus.name}",
                lambda: folder if folder.exists() else None,
                lambda locked: _build(corpus, contents, tokenizer or vocab_size, folder, locked),
            )
        except TextChanged:
            note.unlink(missing_ok=True)  # or the next start would believe it again
            raise
        return read(folder, corpus.name, folder.with_suffix(".verified.json"))
    except OSError as error:
        full = is_disk_full(error)
        reason = full_disk_message(error, written) if full else error.strerror or error
        remedy = "name a folder that can be written with --set data.cache=FOLDER"
        message = f"cannot keep tokens there: {reason}; {'make room, or ' if full else ''}{remedy}"
        raise InputError(Problem(message, key="data.cache", where=str(written))) from error


def _hash(parts: list) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def remembered(corpus: Corpus, note: Path) -> Contents:
    """The corpus's contents; not read again if it was surveyed before and its files are the same."""

    def noted() -> Contents | None:
        # What is not as it was written is none: the corpus is read again.
        with suppress(OSError, Damaged):
            return Contents(**read_sealed(note))
        return None

    def read_corpus(locked: bool) -> Contents:
        with _byte_bar(f"reading {corpus.name}") as bar:
            contents = survey(corpus, bar.update)
        write_sealed(note, asdict(contents))
        return contents

    return _by_one_process(note, f"reads {corpus.name}", noted, read_corpus)


def _by_one_process(
    path: Path, doing: str, find: Callable[[], Found | None], make: Callable[[bool], Found]
) -> Found:
    """What `find` gives, made first where that is None: by one process, while the others wait for its lock.

    Where nothing can be locked (some network file systems, a cache that is read-only), each makes its own.
    `make` gets whether there is a lock.
    """
    if (found := find()) is not None:
        return found
    # A soft lock, which is a file and nothing else, would outlive a kill.
    lock = FileLock(path.with_suffix(".lock"), fallback_to_soft=False)
    try:
        with suppress(OSError):
            try:
                lock.acquire(timeout=1)
            except Timeout:
                print(f"waiting for another process that {doing}", file=sys.stderr)
                lock.acquire()
        found = find()
        return make(lock.is_locked) if found is None else found
    finally:
        lock.release()


def _build(
    corpus: Corpus, contents: Contents, vocabulary: int | TextTokenizer, folder: Path, locked: bool
) -> Path:
    """Write all splits into a folder, which then gets its name.

    `vocabulary` is the tokenizer, or how many tokens one has that is learned on the training split.

    Raises TextChanged for a corpus that is not `contents` any more.
    """
    with signals_deferred():
        import datasets  # slow, and not needed to read a cache

    if locked:  # then what lies beside is left over from a process that was killed
        for stale in folder.parent.glob(f"{folder.name}.part-*"):
            shutil.rmtree(stale)
    datasets.disable_progress_bars()  # ours show it already
    part = folder.with_name(f"{folder.name}.part-{uuid.uuid4().hex[:8]}")
    part.mkdir()
    try:
        if isinstance(vocabulary, TextTokenizer):
            tokenizer = vocabulary
        else:
            doing = f"learning {vocabulary} tokens from {corpus.name}"
            with _byte_bar(doing, contents.bytes["train"]) as bar:
                tokenizer = train_tokenizer(_counted(corpus.documents("train"), bar), vocabulary)
        tokenizer.save(part / TOKENIZER)
        units = TextUnits(tokenizer.token_bytes(), corpus.newline_is_word)
        digest = hashlib.sha256()
        with _byte_bar(f"tokenising {corpus.name}", sum(contents.bytes.values())) as bar:
            for split in SPLITS:
                documents = _counted(digested(digest, split, corpus.documents(split)), bar)
                write_split(documents, tokenizer, units, part / split)
        if digest.hexdigest() != contents.fingerprint:
            raise TextChanged(f"the text of {corpus.name} changed while it was read; run again")
        write_meta(
            part,
            {
                "format": FORMAT,
                "name": corpus.name,
                "corpus": contents.fingerprint,
                "tokenizer": tokenizer.fingerprint,
                "tokenizers": tokenizers.__version__,
                "vocab_size": tokenizer.vocab_size,
                "newline_is_word": corpus.newline_is_word,
                "split": corpus.split(),
            },
        )
        fsync_tree(part)
        try:
            part.rename(folder)
        except OSError:
            if not folder.exists():  # another, without locks, was first
                raise
        fsync_folder(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _byte_bar(about: str, total: int | None = None) -> tqdm:
    return progress_bar(total, about, "B", unit_scale=True, unit_divisor=1024, leave=False)


def _counted(documents: Iterable[str], bar: tqdm) -> Iterator[str]:
    for document in documents:
        yield document
        bar.update(len(document.encode()))


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Write meta.json of a cache folder, with size and CRC-32 of all other files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(META))
    sums = {path.relative_to(folder).as_posix(): [path.stat().st_size, crc32(path)] for path in files}
    write_sealed(folder / META, {**meta, "files": sums})


def read(folder: Path, name: str, note: Path) -> TokenCache:
    """Open a cache folder, once it is known to be what was written. Raises InputError where it is not.

    Args:
        name: that of the corpus, for messages.
        note: where the state of its files is kept once they were compared.
    """
    try:
        meta = read_sealed(folder / META)
        _compare(folder, meta["files"], name, note)
    except (Damaged, FileNotFoundError) as error:
        lost = isinstance(error, OSError)
        how = f"{Path(error.filename).relative_to(folder)} is missing" if lost else error
        message = (
            f"the token cache is damaged: {how}; remove this folder, and it is made again from the corpus"
        )
        raise InputError(Problem(message, where=str(folder))) from error
    tokenizer = TextTokenizer.load(folder / TOKENIZER)
    units = TextUnits(tokenizer.token_bytes(), meta["newline_is_word"])
    streams = {split: TokenStream(folder / split) for split in SPLITS}
    return TokenCache(folder, meta["corpus"], tokenizer, units, streams, meta.get("split"))


def _compare(folder: Path, recorded: dict[str, list[int]], name: str, note: Path) -> None:
    """Raises Damaged or FileNotFoundError where a file is not what was written.

    A corpus of 20 GB is not read at every start: files that were compared in their present state (size,
    times, inode) are taken to be intact.
    """
    begun = time.time_ns()
    states = {}
    for file, (size, _) in recorded.items():
        status = (folder / file).stat()
        if status.st_size != size:
            raise Damaged(f"{file} has {status.st_size} bytes and not {size}")
        states[file] = [size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]

    def known() -> bool | None:
        with suppress(OSError, ValueError, RecursionError):
            return json.loads(note.read_text(encoding="utf-8")) == states or None
        return None

    def compare(locked: bool) -> bool:
        with _byte_bar(f"checking the tokens of {name}", sum(size for size, _ in recorded.values())) as bar:
            for file, (size, crc) in recorded.items():
                if crc32(folder / file) != crc:
                    raise Damaged(f"{file} has another content (checksum)")
                bar.update(size)
        if all(begun - max(state[1:3]) > SETTLED for state in states.values()):
            with suppress(OSError):  # a cache that is shared and read-only is read at every start
                atomic_write(note, json.dumps(states, indent=1) + "\n")
        return True

    _by_one_process(note, f"checks the tokens of {name}", known, compare)


def crc32(path: Path) -> int:
    """CRC-32 of a file: it finds every flipped bit, and is no defence against forgery."""
    value = 0
    with path.open("rb") as file:
        while piece := file.read(4 << 20):
            value = zlib.crc32(piece, value)
    return value


def write_sealed(path: Path, value: Any) -> None:
    """Write JSON, and beside it its CRC-32."""
    raw = (json.dumps(value, indent=1) + "\n").encode()
    atomic_write(path, raw)
    atomic_write(path.with_name(f"{path.name}.crc32"), f"{zlib.crc32(raw):08x}\n")


def read_sealed(path: Path) -> Any:
    """The JSON that `write_sealed` wrote. Raises Damaged or OSError."""
    raw = path.read_bytes()
    if path.with_name(f"{path.name}.crc32").read_bytes() != f"{zlib.crc32(raw):08x}\n".encode():
        raise Damaged(f"{path.name} has another content (checksum)")
    return json.loads(raw)
