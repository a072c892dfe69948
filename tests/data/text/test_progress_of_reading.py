"""Progress while a corpus is read: from the first second, on a terminal, by the first process alone."""

import pytest

from zoo import console
from zoo.data.text.cache import open_cache
from zoo.data.text.files import open_text
from zoo.data.text.mix import mix
from zoo.data.text.sample import open_sample


@pytest.fixture
def corpus(tmp_path):
    """A mixture whose documents are divided by their hashes, which reads them three times more."""
    (tmp_path / "own.jsonl").write_text("".join(f'{{"text": "Document number {i}."}}\n' for i in range(60)))
    return mix([open_text(tmp_path / "own.jsonl"), open_sample(20, 60, 0)], [1, 1])


def test_a_log_gets_whole_lines(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    open_cache(lambda: corpus, 270, tmp_path / "cache")
    lines = capsys.readouterr().err.splitlines()
    begins = ("reading ", "learning ", "tokenizing ", "tokenized ")
    assert all(line.startswith(begins) for line in lines) and len(lines) > 4
