"""The files of a comparison: all are written, never over files of the user, and none is lost."""

import os
import re
import signal
from pathlib import Path

import pytest

from zoo.errors import InputError, RunError
from zoo.files import DiskFull
from zoo.reports import write
from zoo.reports.report import build
from zoo.reports.write import FILES, validate_out, write_report


@pytest.fixture
def made(write_run):
    return build([write_run("a"), write_run("b", "rope")])


def test_all_files_are_written_and_nothing_is_left_beside_them(made, tmp_path):
    folder = tmp_path / "new" / "comparison"
    files = write_report(made, folder)
    assert {file.name for file in files} == set(FILES) == {path.name for path in folder.iterdir()}
    assert [path.name for path in folder.parent.iterdir()] == ["comparison"]
    assert (folder / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert "![compare.png](compare.png)" in (folder / "compare.md").read_text()
    for name in ("compare.svg", "index.html"):
        text = (folder / name).read_text()
        assert "alibi" in text and "rope" in text, name


def test_a_forced_comparison_is_marked_in_picture_and_page(write_run, tmp_path):
    runs = [write_run("a"), write_run("b", "rope", recipe={"optimizer.lr": 0.5})]
    write_report(build(runs, force=True), tmp_path / "forced")
    picture, page = ((tmp_path / "forced" / name).read_text() for name in ("compare.svg", "index.html"))
    assert "NOT COMPARABLE" in picture
    assert re.search("not comparable", page, re.IGNORECASE) and "optimizer.lr" in page


def test_without_values_no_picture_is_written(write_run, tmp_path):
    folder = tmp_path / "comparison"
    write_report(build([write_run("a"), write_run("b", "rope")]), folder)
    infinite = build([write_run("c", values={16: None}), write_run("d", "rope", values={16: None})])
    files = write_report(infinite, folder)
    assert {file.name for file in files} == {"compare.md", "compare.csv", "index.html"}
    assert "![" not in (folder / "compare.md").read_text() and not (folder / "compare.png").exists()


def test_a_folder_with_other_files_is_refused_and_left_as_it_was(made, tmp_path):
    for name in ("notes.txt", "index.html", "compare.csv", ".git"):
        folder = tmp_path / f"with_{name}"
        folder.mkdir()
        (folder / name).write_text("mine,yours\n")
        with pytest.raises(InputError, match=f"{folder}.*{name}"):
            write_report(made, folder)
        assert [path.name for path in folder.iterdir()] == [name]
        assert (folder / name).read_text() == "mine,yours\n"


def test_a_run_folder_a_file_and_a_place_below_one_are_refused(made, write_run, tmp_path):
    with pytest.raises(InputError, match="holds other files"):
        validate_out(write_run("x"))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        validate_out(tmp_path / "file")
    for below in ("below", "far/below"):
        with pytest.raises(InputError, match=r"cannot be written there: .*file is a file"):
            validate_out(tmp_path / "file" / below)


def test_a_place_that_is_read_only_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    """os.access is patched: root may write anywhere."""
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    asked = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != Path("mine") and asked(path, mode))
    for folder in ("mine", "mine/new/comparison"):
        with pytest.raises(InputError, match=f"{folder}: .* cannot be written there: mine is read-only"):
            validate_out(Path(folder))
    validate_out(Path("other/new"))


def test_a_place_without_permission_is_refused(made, tmp_path, monkeypatch):
    """The permission is denied by a patch: root would have it."""

    def forbid(*args, **how):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "there").mkdir()
    monkeypatch.setattr(os, "replace", forbid)
    with pytest.raises(InputError, match=r"there: .*Permission denied"):
        write_report(made, tmp_path / "there")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert [*(tmp_path / "there").iterdir()] == []


def test_files_of_a_killed_comparison_are_removed_by_the_next(made, tmp_path, monkeypatch):
    folder = tmp_path / "comparison"
    child = os.fork()
    if not child:
        monkeypatch.setattr(os, "fsync", lambda file: os.kill(os.getpid(), signal.SIGKILL))
        write_report(made, folder)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert sorted(path.name for path in folder.iterdir()) == sorted(f".{name}.{child}" for name in FILES)

    write_report(made, folder)
    assert {path.name for path in folder.iterdir()} == {*FILES}


def test_a_full_disk_leaves_the_last_comparison(made, write_run, tmp_path, monkeypatch):
    folder = tmp_path / "comparison"
    write_report(made, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    real = write.atomic_file

    def full(path, size):
        if path.name == "compare.csv":
            raise DiskFull(path, size)
        return real(path, size)

    monkeypatch.setattr(write, "atomic_file", full)
    second = build([write_run("c", "t5"), write_run("d", "none")])
    with pytest.raises(RunError, match=r"compare\.csv of .* could not be written; make room"):
        write_report(second, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    monkeypatch.undo()
    write_report(second, folder)
    for name in ("compare.md", "compare.csv", "compare.svg", "index.html"):
        text = (folder / name).read_text()
        assert "t5" in text and "alibi" not in text, name
