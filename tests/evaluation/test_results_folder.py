"""Evaluations in a run folder: nothing is lost, and no file is ever half a file."""

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
from zoo.evaluation.store import MEASUREMENTS, read_measurements, store, validate_results_folder
from zoo.reports import evaluate as reporting
from zoo.reports.evaluate import show_results

FILES = ["index.html", "lengths.csv", "lengths.json", "lengths.md", "lengths.png", "lengths.svg"]


def save(folder, *rows):
    measurements = measurements_of(rows)
    store(folder, measurements)
    show_results(folder, measurements)


def files(folder):
    return sorted(
        path.name for path in (folder / "evaluation").iterdir() if path.is_file() and path.name != ".lock"
    )


def test_every_format_has_every_row(tmp_path, drawn):
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
    page = (tmp_path / "evaluation" / "index.html").read_text()
    assert "data:image/svg+xml" in page and "plotly" not in page  # whose script has 4.8 MB


@pytest.mark.parametrize("failing", ["measurement", "lengths.json", "index.html"])
def test_a_full_disk_leaves_whole_files_and_earlier_results(tmp_path, monkeypatch, drawn, failing):
    monkeypatch.setattr(reporting, "pictures", lambda summary: {})
    save(tmp_path, text_row(64))
    earlier = files(tmp_path)
    before = {name: (tmp_path / "evaluation" / name).read_bytes() for name in earlier}
    real = reporting.atomic_write

    def full(path, content):
        if path.name == failing or failing == "measurement" == path.parent.name.removesuffix("s"):
            raise OSError(28, "No space left on device")
        real(path, content)

    for module in (reporting, storage):
        monkeypatch.setattr(module, "atomic_write", full)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, text_row(128))
    assert files(tmp_path) == earlier
    if failing != "measurement":
        assert (tmp_path / "evaluation" / failing).read_bytes() == before[failing]
    # The measurement itself is stored before anything is made from it.
    stored = flat_rows(read_measurements(tmp_path))
    assert [row["length"] for row in stored] == [64, 128][: 1 if failing == "measurement" else 2]
    assert stored[0] == text_row(64)


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


def test_a_lack_of_permission_is_reported_before_anything_is_measured(nobody):
    folder, without_rights = nobody
    save(folder, text_row(64))
    (file,) = (folder / MEASUREMENTS).iterdir()
    for path in (folder / "evaluation", folder / MEASUREMENTS, file):
        path.chmod(0o777)
    for path, mode, message in (
        (folder / MEASUREMENTS, 0o555, "results cannot be stored: no permission to write"),
        (file, 0o000, f"{file.name}: cannot be read: Permission denied"),
    ):
        path.chmod(mode)
        with without_rights(), pytest.raises(InputError, match=message):
            validate_results_folder(folder)
        path.chmod(0o777)
