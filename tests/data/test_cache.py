"""The token cache: made once, exact, shared by processes, and made again when it is damaged."""

import multiprocessing
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from zoo.data import cache as cache_module
from zoo.data.cache import open_cache
from zoo.data.corpora import open_corpus
from zoo.data.corpus import SPLITS, Corpus
from zoo.data.tokens import TokenStream
from zoo.errors import InputError

TEXTS = {
    "train": [f"Document {i} of the training split.\nIt says naïve {i * i} 🦊\n" for i in range(40)],
    "valid": ["One for validation.\n", "another"],
    "test": [],
}


def corpus(texts=TEXTS, identity="a"):
    return Corpus("told", ["told", identity], lambda split: iter(texts[split]), newline_is_word=True)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(cache_module, "BATCH_BYTES", 300)


def fail(split):
    raise AssertionError("the corpus was read again")


def test_documents_come_back_exactly(tmp_path, small_batches):
    cache = open_cache(corpus(), 300, tmp_path)
    for split, documents in TEXTS.items():
        stream = cache.streams[split]
        bounds = [*stream.document_starts, len(stream)]
        assert len(bounds) == len(documents) + 1
        for text, start, end in zip(documents, bounds, bounds[1:], strict=False):
            tokens = stream[start:end]
            assert tokens[-1] == cache.tokenizer.end_token
            assert cache.tokenizer.decode(tokens[:-1]) == text


def test_bytes_and_words_of_a_split_are_exact(tmp_path):
    cache = open_cache(corpus(), 300, tmp_path)
    for split, documents in TEXTS.items():
        tokens = cache.streams[split][:].astype(np.int64)
        previous = np.append(cache.tokenizer.end_token, tokens[:-1])[: len(tokens)]
        raw = "".join(documents).encode()
        words = sum(len(text.split()) + text.count("\n") for text in documents)
        assert cache.units.bytes_of(tokens, previous).sum() == len(raw)
        assert cache.units.words_of(tokens, previous).sum() == words


def test_datasets_can_read_what_is_kept(tmp_path):
    import datasets

    cache = open_cache(corpus(), 300, tmp_path)
    rows = datasets.load_from_disk(str(cache.folder / "train"))
    assert rows.num_rows == 40 and rows.column_names == ["tokens", "bytes", "words"]
    assert rows[3]["bytes"] == len(TEXTS["train"][3].encode())
    assert [token for row in rows["tokens"] for token in row] == cache.streams["train"][:].tolist()


def test_a_slice_is_the_slice_wherever_it_lies(tmp_path):
    # More documents than fit a record batch, so that slices cross from one to the next.
    many = TEXTS | {"train": [f"{i}\n" for i in range(2500)]}
    cache = open_cache(corpus(many), 300, tmp_path)
    stream = cache.streams["train"]
    whole = stream[:]
    assert len(whole) == len(stream) and not np.shares_memory(whole, stream[:5])
    assert cache.tokenizer.decode(whole).replace("<|endoftext|>", "") == "".join(many["train"])
    for start in range(0, len(stream), 37):
        for length in (0, 1, 50, 333, len(stream)):
            assert (stream[start : start + length] == whole[start : start + length]).all()
    assert (stream[-5:] == whole[-5:]).all()
    with pytest.raises(ValueError, match="without steps"):
        stream[::2]


def test_the_stream_is_mapped_and_not_copied(tmp_path):
    stream = open_cache(corpus(), 300, tmp_path).streams["train"]
    assert not stream[5:50].flags.owndata and not stream[5:50].flags.writeable
    assert stream[5:50].dtype == np.uint16
    assert np.shares_memory(stream[5:50], stream[40:60])


def test_a_stream_goes_to_another_process(tmp_path):
    stream = open_cache(corpus(), 300, tmp_path).streams["train"]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert (pool.apply(TokenStream.__getitem__, (stream, slice(3, 30))) == stream[3:30]).all()


def test_second_time_nothing_is_read_or_learned(tmp_path):
    first = open_cache(corpus(), 300, tmp_path)
    again = open_cache(Corpus("told", ["told", "a"], fail, True), 300, tmp_path)
    assert again.folder == first.folder and again.corpus == first.corpus
    assert again.tokenizer.fingerprint == first.tokenizer.fingerprint


def test_key_is_the_text_and_the_vocabulary(tmp_path):
    folder = open_cache(corpus(), 300, tmp_path).folder
    other = TEXTS | {"valid": ["Two for validation.\n", "another"]}
    assert open_cache(corpus(identity="b"), 300, tmp_path).folder == folder
    assert open_cache(corpus(), 301, tmp_path).folder != folder
    assert open_cache(corpus(other, identity="c"), 300, tmp_path).folder != folder


def test_a_changed_file_is_noticed(tmp_path):
    root = tmp_path / "texts"
    root.mkdir()
    for i in range(3):
        (root / f"{i}.txt").write_text(f"Text {i}")
    data = SimpleNamespace(name="text", root=str(root))
    first = open_cache(open_corpus(data), 260, tmp_path / "cache")
    (root / "1.txt").write_text("Text 7")
    os.utime(root / "1.txt", ns=(1, 1))  # the same size, another time
    assert open_cache(open_corpus(data), 260, tmp_path / "cache").corpus != first.corpus


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def arrow(folder: Path) -> Path:
    return next((folder / "train").glob("*.arrow"))


DAMAGES = {
    "no meta": lambda folder: (folder / "meta.json").unlink(),
    "meta is no JSON": lambda folder: (folder / "meta.json").write_text("{"),
    "meta is a list": lambda folder: (folder / "meta.json").write_text("[]"),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "tokenizer is cut": lambda folder: shorten(folder / "tokenizer.json"),
    "no tokens": lambda folder: arrow(folder).unlink(),
    "tokens are cut": lambda folder: shorten(arrow(folder)),
    "tokens are zeros": lambda folder: arrow(folder).write_bytes(bytes(arrow(folder).stat().st_size)),
    "tokens are more": lambda folder: arrow(folder).write_bytes(arrow(folder).read_bytes() + bytes(8)),
    "no state": lambda folder: (folder / "valid/state.json").unlink(),
    "no split": lambda folder: shutil.rmtree(folder / "test"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_noticed_and_repaired(tmp_path, damage, capsys):
    first = open_cache(corpus(), 300, tmp_path)
    tokens = first.streams["train"][:].tolist()
    DAMAGES[damage](first.folder)
    again = open_cache(corpus(), 300, tmp_path)
    assert again.streams["train"][:].tolist() == tokens
    note = capsys.readouterr().err
    assert note.count("\n") == 1 and "damaged" in note and str(first.folder) in note


def test_a_damaged_survey_is_made_again(tmp_path):
    first = open_cache(corpus(), 300, tmp_path)
    for note in (tmp_path / "surveys").iterdir():
        note.write_text('{"fingerprint": 1}')
    assert open_cache(corpus(), 300, tmp_path).folder == first.folder


def test_what_a_killed_process_left_is_removed(tmp_path):
    folder = open_cache(corpus(), 300, tmp_path).folder
    shutil.rmtree(folder)
    left = folder.with_name(folder.name + ".part-99999")
    left.mkdir()
    open_cache(corpus(), 300, tmp_path)
    assert not left.exists()


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def documents(split):
        if split == "valid" and seen:
            raise InputError("gone")
        seen.append(split)
        return iter(TEXTS[split])

    seen = []
    open_cache(corpus(), 300, tmp_path / "other")
    (tmp_path / "cache").mkdir()
    shutil.copytree(tmp_path / "other/surveys", tmp_path / "cache/surveys")
    with pytest.raises(InputError, match="gone"):
        open_cache(Corpus("told", ["told", "a"], documents, True), 300, tmp_path / "cache")
    assert {path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()} == {"surveys"}


def test_text_that_changes_while_it_is_read_is_noticed(tmp_path):
    open_cache(corpus(), 300, tmp_path / "other")
    (tmp_path / "cache").mkdir()
    shutil.copytree(tmp_path / "other/surveys", tmp_path / "cache/surveys")
    with pytest.raises(InputError, match="changed"):
        open_cache(corpus(TEXTS | {"valid": ["other"]}), 300, tmp_path / "cache")


def test_a_cache_that_cannot_be_written_names_the_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"data\.cache: .*--set data\.cache=FOLDER"):
        open_cache(corpus(), 300, tmp_path / "file" / "cache")


def build_slowly(root, barrier, results):
    """In another process: build, and tell whether it was this one that learned the tokenizer."""
    learn = cache_module.train_tokenizer
    learned = []

    def watched(*arguments):
        learned.append(True)
        return learn(*arguments)

    cache_module.train_tokenizer = watched
    barrier.wait()
    cache = open_cache(corpus(), 300, root)
    results.put((len(learned), cache.folder, cache.streams["train"][:].tolist()))


def test_two_builders_at_once_make_one_cache(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    both = [context.Process(target=build_slowly, args=(tmp_path, barrier, results)) for _ in range(2)]
    for process in both:
        process.start()
    told = [results.get(timeout=60) for _ in both]
    for process in both:
        process.join()
    assert sum(learned for learned, _, _ in told) == 1
    assert told[0][1:] == told[1][1:]
    assert set(SPLITS) < {path.name for path in told[0][1].iterdir()}
