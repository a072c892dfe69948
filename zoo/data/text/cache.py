"""The token cache: a corpus is tokenised once, and then only mapped.

A folder per (text, vocabulary size, versions), named by their hash, with tokenizer.json, a
`datasets.Dataset` for each split (columns tokens, bytes, words; a row is a document) and meta.json, which has
the checksum of every file. It is built beside its final path, flushed and renamed, so that a folder of that name
is complete; a lock lets one process build while the others wait. A folder that is not as it was written is
neither used nor removed: an error names it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import uuid
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from zoo.data.text.checksums import Damaged, compare, validate_sizes, unverified
from zoo.data.text.corpus import SPLITS, Contents, Corpus, TextChanged, survey
from zoo.data.text.tokenising import FORMAT, META, META_CRC, TOKENIZER, build, meta_crc, progress
from zoo.data.text.tokenizer import TextTokenizer, TextUnits
from zoo.data.text.tokens import TokenStream
from zoo.errors import InputError, Problem
from zoo.files import full_disk_message, is_disk_full, fsync_folder, fsync_tree, atomic_write


@dataclass(frozen=True)
class TokenCache:
    """An opened cache folder. `corpus` and `tokenizer.fingerprint` identify what it was made of."""

    folder: Path
    corpus: str
    tokenizer: TextTokenizer
    units: TextUnits
    streams: dict[str, TokenStream]


def open_cache(corpus: Corpus, vocab_size: int, root: Path) -> TokenCache:
    """The tokens of a corpus, from the cache below `root` or made and put there.

    Raises InputError for a corpus that cannot be read, for a cache folder that cannot be written, and for one
    that is damaged.
    """
    with _report_unwritable(root):
        note = _survey_of(corpus, root)
        contents = remembered(corpus, note)
        folder = root / key_of(corpus, contents, vocab_size)
        if not folder.exists():
            try:
                build_alone(corpus, contents, vocab_size, folder)
            except TextChanged:
                note.unlink(missing_ok=True)  # or the next start would believe it again
                raise
        return read(folder, corpus.name)


def open_unwritten(corpus: Corpus, vocab_size: int, root: Path, notes: Path) -> TokenCache | None:
    """The tokens of a corpus from a cache that is read and never written; None where it does not have them.

    For a cache that only a checkpoint names: whoever made that does not decide where files come to be. What
    is noted about it goes to the cache `notes`. Raises InputError as `open_cache`.
    """
    with _report_unwritable(notes):
        folder = root / key_of(corpus, remembered(corpus, _survey_of(corpus, notes)), vocab_size)
        if not folder.is_dir():
            return None
        note = notes / "surveys" / f"{_hash([str(folder.resolve())])}.verified.json"
        return read(folder, corpus.name, note)


def _survey_of(corpus: Corpus, root: Path) -> Path:
    return root / "surveys" / f"{_hash(corpus.identity)}.json"


@contextmanager
def _report_unwritable(root: Path) -> Iterator[None]:
    """Makes a cache folder, and raises InputError where it cannot be written."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        full = is_disk_full(error)
        raise InputError(
            Problem(
                f"cannot keep tokens there: "
                f"{full_disk_message(error, root) if full else error.strerror or error}; "
                f"{'make room, or ' if full else ''}"
                "name a folder that can be written with --set data.cache=FOLDER",
                key="data.cache",
                where=str(root),
            )
        ) from error


def key_of(corpus: Corpus, contents: Contents, vocab_size: int) -> str:
    """The name of the cache folder: a hash of all that decides what is in it."""
    return _hash([FORMAT, contents.fingerprint, corpus.newline_is_word, vocab_size, tokenizers.__version__])


def _hash(parts: list) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def remembered(corpus: Corpus, note: Path) -> Contents:
    """The corpus's contents; not read again if it was surveyed before and its files are the same.

    A note that is not what was written is none: the corpus is read again.
    """
    contents = _noted(note)
    if contents is not None:
        return contents
    note.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        # One process of a launch reads, the others then find its note; each where files cannot be locked.
        with suppress(NotImplementedError):
            stack.enter_context(alone(note, f"reads {corpus.name}"))
        contents = _noted(note)
        if contents is None:
            with progress(f"reading {corpus.name}", None) as advance:
                contents = survey(corpus, advance)
            note_of = {"fingerprint": contents.fingerprint, "bytes": contents.bytes, "crc32": _crc_of(contents)}
            atomic_write(note, json.dumps(note_of) + "\n")
    return contents


def _noted(note: Path) -> Contents | None:
    """What a note of an earlier survey says; None where there is none, or not what was written."""
    try:
        known = json.loads(note.read_text(encoding="utf-8"))
        contents = Contents(
            str(known["fingerprint"]), {split: int(known["bytes"][split]) for split in SPLITS}
        )
        return contents if known["crc32"] == _crc_of(contents) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _crc_of(contents: Contents) -> int:
    return zlib.crc32(json.dumps([contents.fingerprint, *contents.bytes.items()]).encode())


def build_alone(corpus: Corpus, contents: Contents, vocab_size: int, folder: Path) -> None:
    """Build the folder unless another process has done so by the time the lock is ours."""
    with ExitStack() as stack:
        try:
            stack.enter_context(alone(folder, f"tokenises {corpus.name}"))
        except NotImplementedError:
            pass  # a file system without locks: then more than one may build, and the first to end is kept
        else:
            # What lies beside is left over from a process that was killed.
            for stale in folder.parent.glob(f"{folder.name}.part-*"):
                shutil.rmtree(stale)
        if folder.exists():
            return
        part = folder.with_name(f"{folder.name}.part-{uuid.uuid4().hex[:8]}")
        try:
            build(corpus, contents, vocab_size, part)
            fsync_tree(part)
            try:
                part.rename(folder)
            except OSError:
                if not folder.exists():  # another, without locks, was first
                    raise
            fsync_folder(folder.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def alone(folder: Path, doing: str) -> Iterator[None]:
    """Hold the lock of a cache folder; say so if another process must be waited for.

    Raises NotImplementedError where files cannot be locked, and OSError where nothing can be written.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder.with_suffix(".lock"))
    try:
        lock.acquire(timeout=1)
    except Timeout:
        print(f"waiting for another process that {doing}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def read(folder: Path, name: str, note: Path | None = None) -> TokenCache:
    """Open a cache folder, once it is known to be what was written. Raises InputError where it is not.

    `note` is where its checked files are noted; beside it by default.
    """
    try:
        meta = read_meta(folder)
        validate_files(folder, meta["files"], name, note or folder.with_suffix(".verified.json"))
        tokenizer = TextTokenizer.load(folder / TOKENIZER)
        if tokenizer.fingerprint != meta["tokenizer"]:
            raise Damaged(f"{TOKENIZER} is another")
        streams = {split: TokenStream(folder / split) for split in SPLITS}
        for split, stream in streams.items():
            if len(stream) != meta["splits"][split]["tokens"]:
                raise Damaged(f"{split} has {len(stream)} tokens and not {meta['splits'][split]['tokens']}")
        units = TextUnits(tokenizer.token_bytes(), meta["newline_is_word"])
        return TokenCache(folder, meta["corpus"], tokenizer, units, streams)
    except PermissionError:
        raise
    except Damaged as error:
        raise _damaged(folder, str(error)) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _damaged(folder, f"{Path(error.filename or folder).name} is missing") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise _damaged(folder, (str(error) or type(error).__name__).splitlines()[0]) from error


def read_meta(folder: Path) -> dict[str, Any]:
    """meta.json of a cache folder. Raises Damaged or OSError."""
    raw = (folder / META).read_bytes()
    if (folder / META_CRC).read_bytes() != meta_crc(raw):
        raise Damaged(f"{META} has another content (checksum)")
    return json.loads(raw)


def validate_files(folder: Path, recorded: dict[str, list[int]], name: str, note: Path) -> None:
    """Raises Damaged where a file is not what was written; one that was compared before is not read again."""
    validate_sizes(folder, recorded)
    if not unverified(folder, recorded, note):
        return
    with ExitStack() as stack:
        # One process of a launch reads, the others then find its note. A cache that is shared and read-only
        # has no lock, and each reads for itself.
        with suppress(OSError, NotImplementedError):
            stack.enter_context(alone(note, f"checks the tokens of {name}"))
        names = unverified(folder, recorded, note)
        with progress(f"checking the tokens of {name}", sum(names.values())) as advance:
            compare(folder, recorded, names, note, advance)


def _damaged(folder: Path, how: str) -> InputError:
    return InputError(
        Problem(
            f"the token cache is damaged: {how}; remove this folder, and it is made again from the corpus",
            where=str(folder),
        )
    )
