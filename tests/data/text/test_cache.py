"""The token cache: built once, exact, shared by processes; damage and a changed text are reported."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from zoo import registry
from zoo.data.text import Corpus, files, tokens
from zoo.data.text.cache import open_cache
from zoo.errors import InputError

TEXTS = {
    "train": [f"Document {i} of the training split.\nIt says naïve {i * i} 🦊\n" for i in range(40)],
    "valid": ["One for validation.\n", "another"],
    "test": [],
}


def corpus(texts=TEXTS, identity="a"):
    return Corpus("small", ["small", identity], lambda split: iter(texts[split]), newline_is_word=True)


def opened(root, vocab_size=300, **options):
    return open_cache(lambda: corpus(**options), vocab_size, root)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(tokens, "BATCH", 300)


def test_documents_come_back_exactly(tmp_path, small_batches):
    cache = opened(tmp_path)
    for split, documents in TEXTS.items():
        stream = cache.streams[split]
        bounds = [*stream.document_starts, len(stream)]
        assert len(bounds) == len(documents) + 1
        for text, start, end in zip(documents, bounds, bounds[1:], strict=False):
            tokens = stream[start:end]
            assert tokens[-1] == cache.tokenizer.end_token
            assert cache.tokenizer.decode(tokens[:-1]) == text


def test_bytes_and_words_of_a_split_are_exact(tmp_path):
    cache = opened(tmp_path)
    for split, documents in TEXTS.items():
        tokens = cache.streams[split][:].astype(np.int64)
        previous = np.append(cache.tokenizer.end_token, tokens[:-1])[: len(tokens)]
        words = sum(len(text.split()) + text.count("\n") for text in documents)
        assert cache.units.bytes_of(tokens).sum() == len("".join(documents).encode())
        assert cache.units.words_of(tokens, previous).sum() == words


def test_a_second_opening_reads_no_token(tmp_path, monkeypatch):
    """So that the start of a run does not take longer with a larger corpus."""
    opened(tmp_path)
    read, real = [], Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, *args, **more: read.append(path) or real(path, *args, **more)
    )
    opened(tmp_path)
    assert read and not [path for path in read if path.suffix == ".tokens"]


def test_a_second_opening_reads_and_learns_nothing(tmp_path):
    def fail(split):
        raise AssertionError("the corpus was read again")

    first = opened(tmp_path)
    again = open_cache(lambda: Corpus("small", ["small", "a"], fail, True), 300, tmp_path)
    assert again.folder == first.folder and again.corpus == first.corpus
    assert again.tokenizer.fingerprint == first.tokenizer.fingerprint


def test_the_key_is_the_identity_and_the_vocabulary(tmp_path):
    first = opened(tmp_path)
    assert opened(tmp_path, identity="b").folder != first.folder
    assert opened(tmp_path, 301).folder != first.folder
    assert open_cache(corpus, 301, tmp_path, first.tokenizer).folder != first.folder


def test_the_fingerprint_is_that_of_documents_and_splits(tmp_path):
    def fingerprint(**splits):
        texts = {"train": [], "valid": [], "test": []} | splits
        return opened(tmp_path, texts=texts, identity=str(texts)).corpus

    seen = {
        fingerprint(train=["ab", "c"]), fingerprint(train=["a", "bc"]), fingerprint(train=["abc"]),
        fingerprint(train=["ab"], valid=["c"]),
    }  # fmt: skip
    assert len(seen) == 4
    assert opened(tmp_path / "other").corpus == opened(tmp_path / "other", identity="b").corpus


DAMAGES = {
    "no meta": (lambda folder: (folder / "meta.json").unlink(), r"No such file.*meta\.json"),
    "meta is cut": (lambda folder: cut(folder / "meta.json"), "the token cache is damaged"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), r"No such file.*tokenizer\.json"),
    "tokens are cut": (
        lambda folder: cut(folder / "train.tokens"),
        r"train\.tokens has \d+ bytes and not \d+",
    ),
    "tokens are longer": (
        lambda folder: (folder / "train.tokens").open("ab").write(bytes(10)),
        r"train\.tokens has \d+ bytes and not \d+",
    ),
    "no split": (lambda folder: (folder / "test.tokens").unlink(), r"No such file.*test\.tokens"),
}


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_reported_and_nothing_is_removed(tmp_path, damage):
    damaging, message = DAMAGES[damage]
    folder = opened(tmp_path).folder
    damaging(folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(InputError, match=message) as caught:
        opened(tmp_path)
    assert len(caught.value.problems) == 1 and str(caught.value).startswith(f"{folder}: the token cache is")
    assert "remove this folder to build it again" in str(caught.value)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    shutil.rmtree(folder)
    assert opened(tmp_path).folder == folder


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def documents(split):
        if split == "valid":
            raise InputError("gone")
        return iter(TEXTS[split])

    with pytest.raises(InputError, match="gone"):
        open_cache(lambda: Corpus("small", ["small", "a"], documents), 300, tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def plain_text(root, count=9):
    """Opens the corpus of `count` files that are written here."""
    root.mkdir()
    for i in range(count):
        (root / f"{i}.txt").write_text(f"Text {i} of some words")
    return lambda: registry.datasets.load("text")(root=str(root)).corpus()


def test_a_file_with_another_text_of_an_old_time_is_noticed(tmp_path):
    open_corpus = plain_text(tmp_path / "texts")
    first = open_cache(open_corpus, 260, tmp_path / "cache")
    file = tmp_path / "texts/1.txt"
    times = file.stat()
    file.write_text("Text 7 of some words")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert open_cache(open_corpus, 260, tmp_path / "cache").corpus != first.corpus


@pytest.mark.parametrize(("change", "seen"), [("goes", 0), ("goes", 20), ("changes", 5), ("changes", 24)])
def test_a_file_that_disappears_or_changes_while_it_is_read_is_reported(tmp_path, monkeypatch, seen, change):
    open_corpus = plain_text(tmp_path / "texts")
    file, real, count = tmp_path / "texts/5.txt", files._plain_documents, iter(range(10**6))

    def documents(path, column):
        if next(count) == seen:
            file.unlink() if change == "goes" else file.write_text("Another")
        return real(path, column)

    monkeypatch.setattr(files, "_plain_documents", documents)
    message = (
        r"5\.txt: cannot be read: No such file"
        if change == "goes"
        else "changed while it was read; run again"
    )
    with pytest.raises(InputError, match=message):
        open_cache(open_corpus, 260, tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    if change == "changes":
        open_cache(open_corpus, 260, tmp_path / "cache")
