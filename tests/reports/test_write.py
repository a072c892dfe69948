"""The files of a comparison: all are written, never over files of the user, and none is lost."""

import pytest

from zoo.errors import InputError
from zoo.reports.compare import FILES, write_report
from zoo.reports.report import build


@pytest.fixture
def made(write_run):
    return build([write_run("a"), write_run("b", "rope")])


def test_all_files_are_written_and_nothing_is_left_beside_them(made, tmp_path):
    folder = tmp_path / "new" / "comparison"
    files = write_report(made, folder, with_latex=True)
    assert {file.name for file in files} == set(FILES) == {path.name for path in folder.iterdir()}
    assert [path.name for path in folder.parent.iterdir()] == ["comparison"]
    assert (folder / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert "![compare.png](compare.png)" in (folder / "compare.md").read_text()
    for name in ("compare.svg", "index.html"):
        text = (folder / name).read_text()
        assert "alibi" in text and "rope" in text, name


def test_every_file_of_a_forced_comparison_is_marked(write_run, tmp_path):
    runs = [write_run("a"), write_run("b", "rope", recipe={"optimizer.lr": 0.5})]
    files = write_report(build(runs, force=True), tmp_path / "forced", with_latex=True)
    key = "recipe optimizer.lr: 0.001 in runs/a; 0.5 in runs/b"
    for file in files:
        if file.suffix not in (".png", ".pdf"):
            text = file.read_text()
            assert "NOT COMPARABLE" in text or f"no: {key}" in text
            assert key in text or file.suffix == ".svg"


def test_without_values_no_picture_is_written(write_run, tmp_path):
    folder = tmp_path / "comparison"
    write_report(build([write_run("a"), write_run("b", "rope")]), folder)
    infinite = build([write_run("c", values={16: None}), write_run("d", "rope", values={16: None})])
    files = write_report(infinite, folder)
    assert {file.name for file in files} == {"compare.md", "compare.csv", "index.html"}
    assert "![" not in (folder / "compare.md").read_text() and not (folder / "compare.png").exists()


def test_a_folder_with_other_files_is_refused_and_left_as_it_was(made, tmp_path):
    for name in ("notes.txt", "index.html", ".git"):
        folder = tmp_path / f"with_{name}"
        folder.mkdir()
        (folder / name).write_text("mine,yours\n")
        with pytest.raises(InputError, match=f"{folder} holds other files"):
            write_report(made, folder)
        assert [path.name for path in folder.iterdir()] == [name]
        assert (folder / name).read_text() == "mine,yours\n"
