"""Progress while a corpus is read: from the first second, on a terminal, by the first process alone."""

import sys

import pytest

from zoo import console
from zoo.data.text.cache import open_cache
from zoo.data.text.files import open_text
from zoo.data.text.hub import open_hub
from zoo.data.text.mix import mix
from zoo.data.text.sample import open_sample


@pytest.fixture
def corpus(tmp_path):
    """A mixture whose documents are divided by their hashes, which reads them three times more."""
    (tmp_path / "own.jsonl").write_text("".join(f'{{"text": "Document number {i}."}}\n' for i in range(60)))
    return mix([open_text(tmp_path / "own.jsonl"), open_sample(20, 60, 0)], [1, 1])


def test_every_pass_over_a_corpus_shows_a_bar_at_once(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    open_cache(lambda: corpus, 270, tmp_path / "cache")
    drawn = capsys.readouterr().err
    passes = ("reading text", "reading sample", "learning 270 tokens from mix", "tokenizing mix")
    places = [drawn.index(f"{one}: 0.00B") for one in passes]
    assert min(places) < 100
    open_cache(lambda: corpus, 270, tmp_path / "cache")
    assert capsys.readouterr().err == ""


def test_a_log_gets_whole_lines(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    open_cache(lambda: corpus, 270, tmp_path / "cache")
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith(("reading ", "learning ", "tokenizing ")) for line in lines) and len(lines) > 4


def test_other_processes_show_nothing(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("RANK", "1")
    open_cache(lambda: corpus, 270, tmp_path / "cache")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_dataset_that_is_fetched_shows_the_bars_of_datasets(tmp_path, monkeypatch, capsys, rank):
    import datasets

    (tmp_path / "repository").mkdir()
    (tmp_path / "repository/train.jsonl").write_text('{"text": "A document."}\n' * 9)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("RANK", str(rank))
    datasets.enable_progress_bars()
    open_hub(str(tmp_path / "repository"), None, None, None, None, "text").split()
    drawn = capsys.readouterr().err
    if rank:
        assert drawn == ""
    else:
        assert drawn.startswith(f"reading {tmp_path}") and "train split: 9 examples" in drawn
