"""Atomic writes, and errors of a full disk."""

import io
import os
import pickle

import pytest
import torch

from zoo.files import (
    atomic_file,
    atomic_folder,
    atomic_write,
    is_disk_full,
)


def without_number(path):
    """The name of a temporary file without its random part."""
    name = os.path.basename(path)
    return name.rstrip("0123456789") if name.startswith(".") else name


def test_text_and_bytes_are_written(tmp_path):
    for content in ("Übermut\n", b"\x89PNG\r\n"):
        atomic_write(tmp_path / "deep" / "file", content)
        expected = content if isinstance(content, bytes) else content.encode()
        assert (tmp_path / "deep" / "file").read_bytes() == expected
        assert os.listdir(tmp_path / "deep") == ["file"]


def test_a_file_is_flushed_then_renamed_then_its_folder_is_flushed(tmp_path, monkeypatch):
    calls, fsync, replace = [], os.fsync, os.replace

    def record_fsync(descriptor):
        calls.append(("fsync", without_number(os.readlink(f"/proc/self/fd/{descriptor}"))))
        fsync(descriptor)

    def record_replace(old, new):
        calls.append(("replace", os.path.basename(new)))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    atomic_write(tmp_path / "file", "new")
    assert calls == [("fsync", ".file."), ("replace", "file"), ("fsync", tmp_path.name)]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, failing):
    atomic_write(tmp_path / "file", "old")

    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(OSError, match="No space"):
        atomic_write(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_a_file_appears_only_when_it_is_complete(tmp_path):
    with atomic_file(tmp_path / "file") as file:
        file.write(b"new")
        assert not (tmp_path / "file").exists()
    assert (tmp_path / "file").read_bytes() == b"new" and os.listdir(tmp_path) == ["file"]


def from_torch(number):
    """The error of torch for a stream that accepts only the first bytes."""

    class Small(io.RawIOBase):
        def writable(self):
            return True

        def write(self, raw):
            self.taken = getattr(self, "taken", 0) + len(raw)
            if self.taken > 1000:
                raise OSError(number, os.strerror(number))
            return len(raw)

    torch.save({"weights": torch.zeros(1000)}, Small())


def from_words(number):
    raise Exception(f"{os.strerror(number)} (os error {number})")  # as the package tokenizers does


def from_system(number):
    raise OSError(number, os.strerror(number))


def after_another(number):
    try:
        from_system(number)
    except OSError as error:
        raise ValueError("cannot be written") from error


@pytest.mark.parametrize("kind", [from_torch, from_words, from_system, after_another])
def test_a_full_disk_is_recognized_in_any_error(tmp_path, kind):
    for number, full in ((28, True), (122, True), (5, False), (13, False)):
        with pytest.raises(Exception) as caught, atomic_file(tmp_path / "file") as file:
            file.write(b"some")
            kind(number)
        assert is_disk_full(caught.value) is full and (str(tmp_path) in str(caught.value)) is full, number
        assert os.listdir(tmp_path) == []
        if full:  # a loader's process sends it to the main one by pickle
            for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
                assert error.filename == str(tmp_path / "file") and error.strerror == os.strerror(error.errno)


def test_a_folder_appears_only_when_it_is_complete_and_flushed(tmp_path, monkeypatch):
    flushed, real = [], os.fsync

    def fsync(descriptor):
        flushed.append(without_number(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_folder(tmp_path / "new" / "folder") as folder:
        (folder / "deep").mkdir()
        for name in ("a", "deep/b"):
            (folder / name).write_text("x")
        assert not (tmp_path / "new" / "folder").exists()
    assert sorted(flushed) == sorted([".folder.", "a", "deep", "b"])
    assert (tmp_path / "new" / "folder" / "deep" / "b").read_text() == "x"
    with pytest.raises(OSError, match="full"), atomic_folder(tmp_path / "new" / "full"):
        from_system(28)
    assert os.listdir(tmp_path / "new") == ["folder"]
