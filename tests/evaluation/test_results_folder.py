"""What a run folder keeps of its evaluations: nothing is lost, and no file is ever half a file."""

import csv
import json
import os
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from measured import measurements_of
from rows import text_row

from zoo.errors import InputError
from zoo.evaluation import store as storage
from zoo.evaluation.measurement import flat_rows
from zoo.evaluation.store import MEASUREMENTS, read_measurements, validate_results_folder
from zoo.reports import run_folder
from zoo.reports.run_folder import store_results

FILES = ["index.html", "lengths.csv", "lengths.json", "lengths.md", "lengths.png", "lengths.svg"]


@pytest.fixture
def undrawn(monkeypatch):
    """Without the pictures, which take most of the time."""
    monkeypatch.setattr(run_folder, "pictures", lambda summary: {})


def save(folder, *rows):
    store_results(folder, measurements_of(rows))


def files(folder):
    return sorted(
        path.name for path in (folder / "evaluation").iterdir() if path.is_file() and path.name != ".lock"
    )


def test_every_format_has_every_row(tmp_path):
    save(tmp_path, text_row(64), text_row(128))
    save(tmp_path, text_row(256, note="too long"))
    assert files(tmp_path) == FILES
    rows = json.loads((tmp_path / "evaluation" / "lengths.json").read_text())
    assert rows == flat_rows(read_measurements(tmp_path))
    assert rows[:2] == [text_row(64), text_row(128)]
    with (tmp_path / "evaluation" / "lengths.csv").open(newline="") as file:
        assert [line["length"] for line in csv.DictReader(file)] == ["64", "128", "256"]
    table = (tmp_path / "evaluation" / "lengths.md").read_text()
    assert "| alibi | 1.500 (1.400–1.600) | 1.500 (1.400–1.600) |" in table and "too long" in table


@pytest.mark.parametrize("failing", ["measurement", "lengths.json", "index.html"])
def test_a_full_disk_leaves_whole_files_and_earlier_results(tmp_path, monkeypatch, undrawn, failing):
    save(tmp_path, text_row(64))
    drawn = files(tmp_path)
    before = {name: (tmp_path / "evaluation" / name).read_bytes() for name in drawn}
    real = run_folder.atomic_write

    def full(path, content):
        if path.name == failing or failing == "measurement" == path.parent.name.removesuffix("s"):
            raise OSError(28, "No space left on device")
        real(path, content)

    for module in (run_folder, storage):
        monkeypatch.setattr(module, "atomic_write", full)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, text_row(128))
    assert files(tmp_path) == drawn
    if failing != "measurement":
        assert (tmp_path / "evaluation" / failing).read_bytes() == before[failing]
    # The measurement itself is stored before anything is made from it.
    stored = flat_rows(read_measurements(tmp_path))
    assert [row["length"] for row in stored] == [64, 128][: 1 if failing == "measurement" else 2]
    assert stored[0] == text_row(64)


def test_all_that_keeps_results_from_being_written_is_reported_at_once(tmp_path):
    validate_results_folder(tmp_path)
    evaluation = tmp_path / "evaluation"
    evaluation.write_text("")
    with pytest.raises(InputError, match=f"^{evaluation}: results cannot be written there: it is a file"):
        validate_results_folder(tmp_path)
    evaluation.unlink()
    for name in ("nonoverlapping", "sliding"):
        damaged = tmp_path / MEASUREMENTS / f"{name}-0a0a0a0a0a0a.json"
        damaged.parent.mkdir(parents=True, exist_ok=True)
        damaged.write_text("{")
    with pytest.raises(InputError) as error:
        validate_results_folder(tmp_path)
    assert [problem.where for problem in error.value.problems] == [
        f"{damaged.parent}/{name}-0a0a0a0a0a0a.json:1" for name in ("nonoverlapping", "sliding")
    ]


@pytest.fixture
def nobody(monkeypatch):
    """A folder that all may reach, and being without any right of root's: `with without_rights(): ...`."""
    monkeypatch.setattr(os, "access", partial(os.access, effective_ids=True))
    user = os.geteuid()

    @contextmanager
    def without_rights():
        if user == 0:
            os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(user)

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder), without_rights


def test_a_lack_of_permission_is_reported_as_what_it_is(nobody, undrawn):
    folder, without_rights = nobody
    save(folder, text_row(64))
    evaluation, (file,) = folder / "evaluation", (folder / MEASUREMENTS).iterdir()
    for path, mode, said in (
        (evaluation, 0o555, f"{evaluation}: results cannot be written there: no permission to write in"),
        (file, 0o000, f"{file.name}: cannot be read: Permission denied"),
        (folder, 0o000, f"{evaluation}: results cannot be written there: Permission denied"),
    ):
        path.chmod(mode)
        with without_rights(), pytest.raises(InputError, match=said) as error:
            validate_results_folder(folder)
        assert "move it away" not in str(error.value)
        path.chmod(0o755)
