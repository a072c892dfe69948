"""A file is written whole or not at all, and a full disk is known as one."""

import ast
import io
import os
import pickle
from pathlib import Path

import pytest
import torch

from zoo.files import (
    DiskFull,
    atomic_file,
    atomic_write,
    format_bytes,
    fsync_tree,
    full_disk_message,
    is_disk_full,
)


@pytest.mark.parametrize("content", ["Übermut\n", b"\x89PNG\r\n"])
def test_it_is_what_was_given(tmp_path, content):
    atomic_write(tmp_path / "deep" / "file", content)
    expected = content if isinstance(content, bytes) else content.encode()
    assert (tmp_path / "deep" / "file").read_bytes() == expected
    assert os.listdir(tmp_path / "deep") == ["file"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_leaves_the_old_one_and_nothing_beside(tmp_path, monkeypatch, failing):
    atomic_write(tmp_path / "file", "old")

    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(OSError, match="No space"):
        atomic_write(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_a_file_is_written_piece_by_piece_and_takes_its_place_at_the_end(tmp_path):
    with atomic_file(tmp_path / "file") as file:
        file.write(b"new")
        assert not (tmp_path / "file").exists()
    assert (tmp_path / "file").read_bytes() == b"new" and os.listdir(tmp_path) == ["file"]


def from_torch(number):
    """What torch makes of a stream that takes only the first bytes."""

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
    raise Exception(f"{os.strerror(number)} (os error {number})")  # so does the package tokenizers


def from_system(number):
    raise OSError(number, os.strerror(number))


def after_another(number):
    try:
        from_system(number)
    except OSError as error:
        raise ValueError("cannot be written") from error


@pytest.mark.parametrize("kind", [from_torch, from_words, from_system, after_another])
@pytest.mark.parametrize("number, full", [(28, True), (122, True), (5, False), (13, False)])
def test_a_full_disk_is_known_by_whatever_error_tells_it(tmp_path, kind, number, full):
    with pytest.raises(Exception) as caught, atomic_file(tmp_path / "file", 1_234_000) as file:
        file.write(b"some")
        kind(number)
    assert is_disk_full(caught.value) is full and isinstance(caught.value, DiskFull) is full
    assert os.listdir(tmp_path) == []
    if full:
        message = full_disk_message(caught.value, tmp_path / "elsewhere")
        assert message.startswith(f"{tmp_path}: {os.strerror(caught.value.errno).lower()} (")
        assert message.endswith(" free): file of 1.2 MB could not be written")
        again = pickle.loads(pickle.dumps(caught.value))
        assert full_disk_message(again, tmp_path).endswith(message.partition(" free): ")[2])


def test_a_full_disk_without_a_path(tmp_path):
    message = full_disk_message(OSError(28, "No space left on device"), tmp_path / "not" / "there")
    assert full_disk_message(OSError(28, "No space left on device")) == "no space left on device"
    assert message.startswith(f"{tmp_path}/not/there: no space left on device (") and message.endswith(
        " free)"
    )


@pytest.mark.parametrize(
    "count, text",
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (2_500_000, "2.5 MB"), (3e15, "3000.0 TB")],
)
def test_bytes_as_text(count, text):
    assert format_bytes(count) == text


def test_a_tree_is_flushed_file_by_file(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    for name in ("a", "deep/b"):
        (tmp_path / name).write_text("x")
    flushed, real = [], os.fsync

    def fsync(descriptor):
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    fsync_tree(tmp_path)
    assert sorted(flushed) == sorted(map(str, [tmp_path, *tmp_path.rglob("*")]))


MAY_WRITE = {
    "zoo/files.py atomic_file: open": "it is how all others write",
    "zoo/files.py fsync_tree: open": "to flush, not to write",
    "zoo/training/loggers.py log_metrics: open": "metrics.csv grows by a line; whole lines are read",
    "zoo/sweep/local.py _start: open": "the log of a run grows by what its process prints",
    "zoo/memory.py restart_peak_memory: write_text": "/proc/self/clear_refs is no file",
    "zoo/reports/plot.py plot: savefig": "into memory",
    "zoo/gallery/pictures.py small_picture_of: savefig": "the same",
    "zoo/figures/figure.py _still: savefig": "into memory",
    "zoo/training/checkpoints.py save_checkpoint: torch.save": "into a atomic_file",
    "zoo/data/text/tokens.py write_split: OSFile": "its folder is flushed, then renamed",
    "zoo/data/text/tokens.py write_split: save_to_disk": "the same",
    "zoo/data/text/hub.py _stream: open": "its folder is flushed, then renamed",
    "zoo/pretrained/export.py export: copyfile": "into a folder that is made complete or not at all",
    "zoo/pretrained/export.py _write_modelling: copyfile": "the same",
    "zoo/pretrained/import_model.py import_model: copyfile": "the same",
    "zoo/pretrained/import_model.py import_model: torch.save": "the same, into an atomic_file",
    "zoo/data/text/cache.py _build: tokenizer.save": "our own, which is atomic_write",
    "zoo/data/text/datasets.py save_tokenizer: tokenizer.save": "our own, which is atomic_write",
    "scripts/benchmark_restart.py enlarge: OSFile": "a corpus made up to be measured, in a folder of its own",
    "scripts/benchmark_restart.py move_on: torch.save": "the same, of its run",
}
"""The calls that write and are not `atomic_write` or `atomic_file`, and why each may."""
WRITERS = {
    "write_text", "write_bytes", "savefig", "save_to_disk", "tofile", "to_csv", "to_parquet", "OSFile",
    "copyfile", "copy2", "copytree", "mkstemp", "NamedTemporaryFile",
}  # fmt: skip
MODULE_WRITERS = {
    "json.dump", "yaml.dump", "yaml.safe_dump", "pickle.dump", "torch.save", "np.save", "np.savez",
    "tokenizer.save", "shutil.copy", "shutil.move", "os.fdopen",
}  # fmt: skip


def writing_calls(node, function="module"):
    """The calls in a tree that write a file, each with the function it stands in."""
    if isinstance(node, ast.FunctionDef):
        function = node.name
    if isinstance(node, ast.Call):
        full = ast.unparse(node.func).removeprefix("self.")
        name = full.rpartition(".")[2]
        if name == "open" and full != "os.open" and opens_to_write(node):
            yield f"{function}: {name}"
        # Without a stream, YAML is given back as text.
        elif full in MODULE_WRITERS and (not full.startswith("yaml.") or len(node.args) > 1):
            yield f"{function}: {full}"
        elif name in WRITERS:
            yield f"{function}: {name}"
    for inner in ast.iter_child_nodes(node):
        yield from writing_calls(inner, function)


def opens_to_write(call):
    given = [*call.args, *(word.value for word in call.keywords if word.arg == "mode")]
    modes = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return any(set(mode) & set("wxa+") and set(mode) <= set("rwxab+t") for mode in modes)


def calls_in(source):
    return list(writing_calls(ast.parse(source)))


def test_all_that_is_written_is_written_completely():
    root = Path(__file__).parent.parent
    found = []
    for file in sorted([*root.glob("zoo/**/*.py"), *root.glob("scripts/*.py")]):
        place = file.relative_to(root).as_posix()
        found += [f"{place} {call}" for call in calls_in(file.read_text(encoding="utf-8"))]
    assert sorted(set(found)) == sorted(MAY_WRITE)


@pytest.mark.parametrize(
    "line, name",
    [
        ("path.write_text('x')", "write_text"),
        ("(folder / 'a').write_bytes(b'x')", "write_bytes"),
        ("open(path, 'w')", "open"),
        ("open(path, mode='xb')", "open"),
        ("path.open('ab')", "open"),
        ("figure.savefig(path)", "savefig"),
        ("json.dump(content, file)", "json.dump"),
        ("yaml.safe_dump(content, file)", "yaml.safe_dump"),
        ("self.tokenizer.save(path)", "tokenizer.save"),
        ("torch.save(content, path)", "torch.save"),
        ("shutil.copyfile(a, b)", "copyfile"),
    ],
)
def test_the_law_knows_a_write(line, name):
    assert calls_in(line) == [f"module: {name}"]


@pytest.mark.parametrize(
    "line",
    ["path.open('rb')", "open(path)", "path.read_text()", "yaml.safe_dump(content)", "json.dumps(content)",
     "os.open(folder, os.O_RDONLY)", "known.copy()", "pa.ipc.open_stream(pa.memory_map(str(file)))"],
)  # fmt: skip
def test_the_law_lets_others_be(line):
    assert not calls_in(line)
