"""`prepare` tokenizes what `fit` reads."""

from zoo.data import open_data
from zoo.data.prepare import prepare
from zoo.data.text import cache


def test_fit_reads_what_was_prepared(recipe, monkeypatch):
    text = recipe("text")
    about, message = prepare(text).splitlines()
    assert about.startswith("sample: ") and "documents: " in about
    monkeypatch.setattr(cache, "_build", None)
    source = open_data(text)
    folder = source.stream("train").path.parent
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert message.startswith(f"{folder}: {len(source.stream('train')):,} train, ")
    assert message.endswith(f"{size / 1e3:.3g}kB on disk") or size >= 1e6
    assert "nothing to prepare" in prepare(recipe())
