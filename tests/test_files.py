"""A file is written whole or not at all."""

import os

import pytest

from zoo.files import write_whole


@pytest.mark.parametrize("content", ["Übermut\n", b"\x89PNG\r\n"])
def test_it_is_what_was_given(tmp_path, content):
    write_whole(tmp_path / "deep" / "file", content)
    expected = content if isinstance(content, bytes) else content.encode()
    assert (tmp_path / "deep" / "file").read_bytes() == expected
    assert os.listdir(tmp_path / "deep") == ["file"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_leaves_the_old_one_and_nothing_beside(tmp_path, monkeypatch, failing):
    write_whole(tmp_path / "file", "old")

    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old" and os.listdir(tmp_path) == ["file"]
