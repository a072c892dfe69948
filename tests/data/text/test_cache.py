"""The token cache: made once, exact, shared by processes, and damage is reported."""

import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import zoo
from zoo import registry
from zoo.data.text import SPLITS, Corpus, files, tokens
from zoo.data.text import cache as token_cache
from zoo.data.text.cache import open_cache, remembered
from zoo.data.text.tokens import TokenStream
from zoo.errors import InputError

TEXTS = {
    "train": [f"Document {i} of the training split.\nIt says naïve {i * i} 🦊\n" for i in range(40)],
    "valid": ["One for validation.\n", "another"],
    "test": [],
}


def open_corpus(data):
    """The corpus of a dataset, by its name and options."""
    options = {key: value for key, value in vars(data).items() if key != "name"}
    return registry.datasets.load(data.name)(**options).corpus()


def corpus(texts=TEXTS, identity="a"):
    return Corpus("small", ["small", identity], lambda split: iter(texts[split]), newline_is_word=True)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(tokens, "BATCH", 300)


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
        assert cache.units.bytes_of(tokens).sum() == len(raw)
        assert cache.units.words_of(tokens, previous).sum() == words


@pytest.mark.launch
def test_a_cache_is_read_without_datasets_and_pandas(tmp_path):
    open_cache(corpus(), 300, tmp_path)
    program = (
        "import sys\nfrom pathlib import Path\nfrom zoo.data.text.tokens import TokenStream\n"
        "assert len(TokenStream(Path(sys.argv[1])))\n"
        "print(sorted({'datasets', 'pandas'} & sys.modules.keys()))\n"
    )
    (folder,) = tmp_path.glob("*/train")
    command = [sys.executable, "-c", program, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(Path(zoo.__file__).parents[1])}
    assert subprocess.check_output(command, text=True, env=environment) == "[]\n"


def test_datasets_can_read_a_cache(tmp_path):
    import datasets

    cache = open_cache(corpus(), 300, tmp_path)
    rows = datasets.load_from_disk(str(cache.folder / "train"))
    assert rows.num_rows == 40 and rows.column_names == ["tokens", "bytes", "words"]
    assert rows[3]["bytes"] == len(TEXTS["train"][3].encode())
    assert [token for row in rows["tokens"] for token in row] == cache.streams["train"][:].tolist()


def test_a_slice_is_that_of_the_whole_stream(tmp_path):
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


def test_a_stream_can_be_sent_to_another_process(tmp_path):
    stream = open_cache(corpus(), 300, tmp_path).streams["train"]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert (pool.apply(TokenStream.__getitem__, (stream, slice(3, 30))) == stream[3:30]).all()


def test_a_second_opening_reads_and_learns_nothing(tmp_path):
    first = open_cache(corpus(), 300, tmp_path)
    again = open_cache(Corpus("small", ["small", "a"], fail, True), 300, tmp_path)
    assert again.folder == first.folder and again.corpus == first.corpus
    assert again.tokenizer.fingerprint == first.tokenizer.fingerprint


def test_all_files_are_flushed_before_the_folder_has_its_name(tmp_path, monkeypatch):
    flushed, real, rename = set(), os.fsync, Path.rename

    def fsync(descriptor):
        flushed.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    def watched(path, target):
        if ".part-" in path.name:
            assert {str(path), *map(str, path.rglob("*"))} <= flushed
            flushed.clear()
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", watched)
    open_cache(corpus(), 300, tmp_path)
    assert str(tmp_path) in flushed  # and then the name itself


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


def flip(path: Path, place: int = 40) -> None:
    raw = bytearray(path.read_bytes())
    raw[place] ^= 1
    path.write_bytes(raw)


DAMAGES = {
    "no meta": (lambda folder: (folder / "meta.json").unlink(), "meta.json is missing"),
    "meta is another": (lambda folder: flip(folder / "meta.json"), "meta.json has another content"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "a token is another": (lambda folder: flip(arrow(folder), 1000), "arrow has another content"),
    "tokens are cut": (lambda folder: shorten(arrow(folder)), "arrow has .* bytes and not"),
    "no split": (lambda folder: shutil.rmtree(folder / "test"), "test/dataset_info.json is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_reported_and_nothing_is_removed(tmp_path, damage):
    damaging, said = DAMAGES[damage]
    folder = open_cache(corpus(), 300, tmp_path).folder
    damaging(folder)
    before = contents(folder)
    with pytest.raises(InputError, match=said) as caught:
        open_cache(corpus(), 300, tmp_path)
    assert len(caught.value.problems) == 1 and str(caught.value).startswith(f"{folder}: the token cache is")
    assert str(caught.value).endswith("remove this folder, and it is made again from the corpus")
    assert contents(folder) == before
    shutil.rmtree(folder)
    assert open_cache(corpus(), 300, tmp_path).folder == folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def read_files(monkeypatch):
    """The names of the files that are read for their checksum, with times that count at once."""
    names, real = [], token_cache.crc32
    monkeypatch.setattr(token_cache, "SETTLED", 0)

    def watched(path, *more):
        names.append(path.name)
        return real(path, *more)

    monkeypatch.setattr(token_cache, "crc32", watched)
    return names


def test_a_file_is_compared_once_in_each_state(tmp_path, read_files):
    folder = open_cache(corpus(), 300, tmp_path).folder
    read_files.clear()
    open_cache(corpus(), 300, tmp_path)
    assert not read_files
    # The same size and the same time as before, and yet another content.
    times = arrow(folder).stat()
    flip(arrow(folder), 1000)
    os.utime(arrow(folder), ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(InputError, match="another content"):
        open_cache(corpus(), 300, tmp_path)
    assert arrow(folder).name in read_files
    # Back as it was: intact, by another reading.
    flip(arrow(folder), 1000)
    read_files.clear()
    open_cache(corpus(), 300, tmp_path)
    assert arrow(folder).name in read_files
    read_files.clear()
    open_cache(corpus(), 300, tmp_path)
    assert not read_files


def test_files_just_written_are_not_known_by_their_times(tmp_path, read_files, monkeypatch):
    monkeypatch.setattr(token_cache, "SETTLED", 3600_000_000_000)
    folder = open_cache(corpus(), 300, tmp_path).folder
    read_files.clear()
    open_cache(corpus(), 300, tmp_path)
    assert arrow(folder).name in read_files


def survey_slowly(root, seen):
    def documents(split):
        seen.put(split)
        time.sleep(0.2)
        return iter(TEXTS[split])

    remembered(Corpus("small", ["small", "a"], documents), root / "surveys" / "note.json")


def test_processes_that_start_together_read_a_corpus_once(tmp_path):
    seen = multiprocessing.get_context("fork").SimpleQueue()
    begun = [multiprocessing.get_context("fork").Process(target=survey_slowly, args=(tmp_path, seen))
             for _ in range(3)]  # fmt: skip
    for process in begun:
        process.start()
    for process in begun:
        process.join()
    assert [process.exitcode for process in begun] == [0, 0, 0]
    assert [seen.get() for _ in SPLITS] == [*SPLITS] and seen.empty()


def test_a_damaged_survey_is_made_again(tmp_path):
    first = open_cache(corpus(), 300, tmp_path)
    (note,) = (tmp_path / "surveys").glob("*.json")
    for place in range(0, note.stat().st_size, 41):
        flip(note, place)
        again = open_cache(corpus(), 300, tmp_path)
        assert (again.folder, again.corpus) == (first.folder, first.corpus)


def test_the_unfinished_folder_of_a_killed_process_is_removed(tmp_path):
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
        open_cache(Corpus("small", ["small", "a"], documents, True), 300, tmp_path / "cache")
    assert {path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()} == {"surveys"}


@pytest.mark.parametrize("text", ["other", "Two for validation.\n"])  # the second is as long as the first
def test_text_that_changes_while_it_is_read_is_reported(tmp_path, text):
    open_cache(corpus(), 300, tmp_path / "other")
    (tmp_path / "cache").mkdir()
    shutil.copytree(tmp_path / "other/surveys", tmp_path / "cache/surveys")
    changed = corpus(TEXTS | {"valid": [text, "another"]})
    with pytest.raises(InputError, match="the text of small changed while it was read; run again"):
        open_cache(changed, 300, tmp_path / "cache")
    # The next start reads it anew, at any times of the files.
    assert open_cache(changed, 300, tmp_path / "cache").folder.exists()


def documents_in(root: Path, count: int = 9) -> Path:
    root.mkdir()
    for i in range(count):
        (root / f"{i}.txt").write_text(f"Text {i} of some words")
    return root


def test_a_file_with_another_text_of_an_old_time_is_noticed(tmp_path):
    root = documents_in(tmp_path / "texts")
    data = SimpleNamespace(name="text", root=str(root))
    first = open_cache(open_corpus(data), 260, tmp_path / "cache")
    times = (root / "1.txt").stat()
    (root / "1.txt").write_text("Text 7 of some words")
    os.utime(root / "1.txt", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert open_cache(open_corpus(data), 260, tmp_path / "cache").corpus != first.corpus


@pytest.mark.parametrize(
    ("change", "seen"), [("goes", 0), ("goes", 20), ("changes", 5), ("changes", 10), ("changes", 30)]
)
def test_a_file_that_disappears_or_changes_while_it_is_read_is_reported(tmp_path, monkeypatch, seen, change):
    root = documents_in(tmp_path / "texts")
    data = SimpleNamespace(name="text", root=str(root))
    real, count = files._plain_documents, iter(range(10**6))

    def documents(path):
        # All documents are read once to part them, then for each split to survey, to learn and to tokenise.
        if next(count) == seen:
            (root / "5.txt").unlink() if change == "goes" else (root / "5.txt").write_text("Another")
        return real(path)

    monkeypatch.setattr(files, "_plain_documents", documents)
    first = open_corpus(data)
    if seen <= 5 and change == "changes":
        # The change comes before the first read of this file.
        assert open_cache(first, 260, tmp_path / "cache").folder.exists()
        return
    said = (
        r"5\.txt: cannot be read: No such file"
        if change == "goes"
        else "changed while it was read; run again"
    )
    with pytest.raises(InputError, match=said):
        open_cache(first, 260, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.part-*"))
    if change == "changes":
        open_cache(open_corpus(data), 260, tmp_path / "cache")


def test_a_cache_that_cannot_be_written_names_the_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"data\.cache: .*--set data\.cache=FOLDER"):
        open_cache(corpus(), 300, tmp_path / "file" / "cache")


def build_slowly(root, barrier, results):
    """In another process: build, and report whether this one learned the tokenizer."""
    learn = token_cache.train_tokenizer
    learned = []

    def watched(*arguments):
        learned.append(True)
        return learn(*arguments)

    token_cache.train_tokenizer = watched
    barrier.wait()
    cache = open_cache(corpus(), 300, root)
    results.put((len(learned), cache.folder, cache.streams["train"][:].tolist()))


def test_two_builders_at_once_make_one_cache(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    both = [context.Process(target=build_slowly, args=(tmp_path, barrier, results)) for _ in range(2)]
    for process in both:
        process.start()
    opened = [results.get(timeout=60) for _ in both]
    for process in both:
        process.join()
    assert sum(learned for learned, _, _ in opened) == 1
    assert opened[0][1:] == opened[1][1:]
    assert set(SPLITS) < {path.name for path in opened[0][1].iterdir()}
