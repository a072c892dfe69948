"""What a run folder keeps of its evaluations: nothing is lost, and no file is ever half a file."""

import csv
import json
import math
import os
import tempfile
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from rows import text_row

from zoo.errors import InputError
from zoo.evaluation import results
from zoo.evaluation.curves import panels
from zoo.evaluation.results import PassingNote, must_take_results, store_rows, stored_rows
from zoo.evaluation.tables import rows_as_text
from zoo.evaluation.units import UNITS_FILE, document_units, read_units, with_units, without_units

FILES = ["lengths.csv", "lengths.json", "lengths.md", "lengths.png", "lengths.svg"]


@pytest.fixture
def undrawn(monkeypatch):
    """Without the pictures, which take most of the time."""
    monkeypatch.setattr(results, "plot_lengths", lambda rows, *files: None)


def files(folder):
    return sorted(path.name for path in (folder / "evaluation").iterdir() if path.name != ".lock")


def test_every_format_has_every_row(tmp_path):
    rows = [text_row(64), text_row(128), text_row(256, note="too long")]
    store_rows(tmp_path, rows)
    assert files(tmp_path) == FILES
    assert stored_rows(tmp_path) == rows
    with (tmp_path / "evaluation" / "lengths.csv").open(newline="") as file:
        assert [line["length"] for line in csv.DictReader(file)] == ["64", "128", "256"]
    assert (
        "| alibi | 1.500 [1.400, 1.600] | 1.500 [1.400, 1.600] | –¹ |"
        in (tmp_path / "evaluation" / "lengths.md").read_text()
    )


@pytest.mark.parametrize(
    "change",
    [
        {"length": 128}, {"protocol": "sliding"}, {"parameters": {"stride": 16}},
        {"checkpoint": "checkpoints/best.ckpt"}, {"changed": {"model.encoding.factor": 4.0}},
    ],
)  # fmt: skip
def test_what_differs_stands_beside(undrawn, tmp_path, change):
    store_rows(tmp_path, [text_row()])
    store_rows(tmp_path, [text_row(value=9.0) | change])
    assert sorted(row["bits_per_byte"] for row in stored_rows(tmp_path)) == [1.5, 9.0]
    store_rows(tmp_path, [text_row(value=2.0)])
    assert sorted(row["bits_per_byte"] for row in stored_rows(tmp_path)) == [2.0, 9.0]
    assert files(tmp_path) == FILES[:3]


def test_the_order_of_parameters_does_not_matter(undrawn, tmp_path):
    store_rows(tmp_path, [text_row(parameters={"window": 8, "bins_per_octave": 2})])
    store_rows(tmp_path, [text_row(parameters={"bins_per_octave": 2, "window": 8}, value=9.0)])
    assert [row["bits_per_byte"] for row in stored_rows(tmp_path)] == [9.0]


def test_rows_of_old_are_those_without_parameters(undrawn, tmp_path):
    old = text_row()
    for key in ("parameters", "targets"):
        del old[key]
    store_rows(tmp_path, [old])
    store_rows(tmp_path, [text_row(value=9.0)])
    assert [row["bits_per_byte"] for row in stored_rows(tmp_path)] == [9.0]


def test_what_an_earlier_step_gave_goes(undrawn, tmp_path):
    store_rows(tmp_path, [text_row(64, step=1), text_row(64, step=1, checkpoint="checkpoints/best.ckpt")])
    store_rows(tmp_path, [text_row(128, step=2)])
    assert [(row["checkpoint"][12:16], row["step"]) for row in stored_rows(tmp_path)] == [
        ("best", 1),
        ("last", 2),
    ]


def test_a_note_replaces_no_measurement(undrawn, tmp_path):
    """What did not fit into memory today was measured all the same."""
    store_rows(tmp_path, [text_row(64), text_row(128, note="out of memory")])
    store_rows(tmp_path, [text_row(64, note="out of memory"), text_row(128)])
    assert [row.get("bits_per_byte") for row in stored_rows(tmp_path)] == [1.5, 1.5]


def test_a_measurement_on_other_targets_loses_nothing_and_makes_no_false_curve(undrawn, tmp_path):
    store_rows(tmp_path, [text_row(64, 1.0), text_row(128, 2.0)])
    store_rows(tmp_path, [text_row(128, 3.0, targets="ffffff", tokens=99)])
    assert [row["bits_per_byte"] for row in stored_rows(tmp_path)] == [1.0, 3.0]
    earlier = json.loads((tmp_path / "evaluation" / "earlier.json").read_text())
    assert [row["bits_per_byte"] for row in earlier] == [2.0]
    # In one panel, and apart.
    table = (tmp_path / "evaluation" / "lengths.md").read_text()
    assert "| alibi (4,096 tokens) | 1.000 [0.900, 1.100] |  |" in table
    assert "| alibi (99 tokens) |  | 3.000 [2.900, 3.100] |" in table
    # And back again: each set of targets keeps what was measured on it last.
    store_rows(tmp_path, [text_row(128, 2.5)])
    store_rows(tmp_path, [text_row(128, 3.5, targets="ffffff", tokens=99)])
    earlier = json.loads((tmp_path / "evaluation" / "earlier.json").read_text())
    assert [row["bits_per_byte"] for row in earlier] == [2.5, 3.0]


def units_in(folder):
    known = read_units(folder / "evaluation" / UNITS_FILE)
    return {(key[1], key[4], targets): units["nats"] for (key, targets), units in known.items()}


def documents(*nats):
    return document_units(range(len(nats)), nats, [10] * len(nats), [30] * len(nats))


def test_what_each_document_gave_lies_beside_the_row_of_its_targets(undrawn, tmp_path):
    store_rows(tmp_path, [text_row(64, units=documents(1.5, 2.0)), text_row(128, units=documents(2.5))])
    assert stored_rows(tmp_path) == [text_row(64), text_row(128)]
    assert units_in(tmp_path) == {
        ("nonoverlapping", 64, "0a0a0a"): [1.5, 2],
        ("nonoverlapping", 128, "0a0a0a"): [2.5],
    }
    # A measurement repeated takes its units with it; one that is gone leaves none behind.
    store_rows(tmp_path, [text_row(64, targets="ffffff", units=documents(3.5, math.inf)), text_row(128)])
    assert units_in(tmp_path) == {
        ("nonoverlapping", 64, "ffffff"): [3.5, None],
        ("nonoverlapping", 128, "0a0a0a"): [2.5],
    }
    store_rows(tmp_path, [text_row(256, step=11)])
    assert units_in(tmp_path) == {}


def test_units_that_do_not_come_to_what_the_row_says_are_not_its_own(undrawn, tmp_path):
    row = text_row(64, units=documents(20.0, 40.0)) | {"loss_nats": 3.0}
    store_rows(tmp_path, [row])
    known = read_units(tmp_path / "evaluation" / UNITS_FILE)
    (own,) = with_units(stored_rows(tmp_path), known)
    assert own["units"]["nats"] == [20, 40]
    other = without_units(row) | {"loss_nats": 3.1}
    assert with_units([other], known) == [other]


def test_rows_on_other_targets_are_neither_joined_nor_averaged_nor_given_one_interval(undrawn, tmp_path):
    """Evaluated at one max_tokens, then at another at some of the lengths."""
    store_rows(tmp_path, [text_row(length, 1.0) for length in (64, 128, 256)])
    store_rows(tmp_path, [text_row(length, 3.0, targets="ffffff", tokens=99) for length in (128, 512)])
    rows = stored_rows(tmp_path)
    (panel,) = panels(rows)
    assert {curve.label: [row["length"] for row in curve.rows] for curve in panel.curves} == {
        "alibi (4,096 tokens)": [64, 256], "alibi (99 tokens)": [128, 512],
    }  # fmt: skip
    for curve, value in zip(panel.curves, (1.0, 3.0), strict=True):
        assert {curve.mean(row["length"], "bits_per_byte") for row in curve.rows} == {value}
        assert {*curve.ends.values()} == {(value - 0.1, value + 0.1)}
    shown = rows_as_text(rows)
    assert "alibi (4,096 tokens)" in shown and "alibi (99 tokens)" in shown


@pytest.mark.parametrize("content, said", [
    ("[{}]", "not what an evaluation writes"),
    ('[{"row": ["c", "p", "{}", "{}", 8], "targets": "a", "units": {"scores": []}}]', "not what"),
    ('[{"row": ["c", "p", "{}", "{}", 8], "targets": "a", "units": {"scores": ["x"]}}]', "not what"),
    ('[{"row": ["c", "p", "{}", "{}", 8], "targets": "a", "units": {"nats": [1]}}]', "not what"),
    ("[", "it is not JSON"),
])  # fmt: skip
def test_damaged_units_are_told_before_anything_is_measured(tmp_path, content, said):
    (tmp_path / "evaluation").mkdir()
    (tmp_path / "evaluation" / UNITS_FILE).write_text(content)
    with pytest.raises(InputError, match=f"units.json.*{said}.*move it away and evaluate again"):
        must_take_results(tmp_path)


@pytest.mark.parametrize("failing", FILES)
def test_a_crash_leaves_whole_files_and_earlier_results(tmp_path, monkeypatch, failing):
    store_rows(tmp_path, [text_row(64)])
    before = {name: (tmp_path / "evaluation" / name).read_bytes() for name in FILES}
    from zoo.evaluation import plot

    real = results.atomic_write

    def full(path, content):
        if path.name == failing:
            raise OSError(28, "No space left on device")
        real(path, content)

    for module in (results, plot):
        monkeypatch.setattr(module, "atomic_write", full)
    with pytest.raises(OSError, match="No space left"):
        store_rows(tmp_path, [text_row(128)])
    assert files(tmp_path) == FILES
    assert (tmp_path / "evaluation" / failing).read_bytes() == before[failing]
    assert stored_rows(tmp_path)[0] == text_row(64)


@pytest.mark.parametrize("name", ["lengths.json", "earlier.json"])
@pytest.mark.parametrize("damage", ["{", "[1]", '{"a": 1}', '[{"a": 1}]', "\x00"])
def test_damaged_results_are_wrong_input(undrawn, tmp_path, name, damage):
    store_rows(tmp_path, [text_row(64)])
    (tmp_path / "evaluation" / name).write_text(damage)
    with pytest.raises(InputError, match=f"{name}(:1)?: (not the|cannot be read: it).* move it away"):
        stored_rows(tmp_path)


def test_evaluations_that_end_at_once_lose_nothing(undrawn, tmp_path):
    threads = [
        threading.Thread(target=store_rows, args=(tmp_path, [text_row(64, protocol=f"p{number}")]))
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stored_rows(tmp_path)) == 6


def test_sections_stand_in_the_order_of_their_numbers(undrawn, tmp_path):
    windows = [100_000, 64, 0.25, 512]
    store_rows(tmp_path, [text_row(parameters={"window": window, "bins": 2}) for window in windows])
    assert [row["parameters"]["window"] for row in stored_rows(tmp_path)] == sorted(windows)


def test_a_passing_note_is_not_stored(undrawn, tmp_path):
    store_rows(tmp_path, [text_row(64, note=PassingNote("too short"))])
    assert stored_rows(tmp_path) == [] and not (tmp_path / "evaluation").exists()
    store_rows(tmp_path, [text_row(64, note=PassingNote("too short")), text_row(128, note="ends")])
    assert [row["length"] for row in stored_rows(tmp_path)] == [128]


def test_all_that_keeps_results_from_being_written_is_told_at_once(tmp_path):
    must_take_results(tmp_path)
    evaluation = tmp_path / "evaluation"
    evaluation.write_text("")
    with pytest.raises(InputError, match=f"^{evaluation}: results cannot be written there: it is a file"):
        must_take_results(tmp_path)
    evaluation.unlink()
    for name in ("lengths.json", "lengths.svg"):
        (evaluation / name).mkdir(parents=True)
    (evaluation / "earlier.json").write_text("{")
    with pytest.raises(InputError) as error:
        must_take_results(tmp_path)
    first, second, damaged = map(str, error.value.problems)
    assert first.startswith(f"{evaluation}/lengths.json: ") and "it is a folder" in first
    assert second.startswith(f"{evaluation}/lengths.svg: ") and "earlier.json:1: cannot be read" in damaged


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


def test_a_lack_of_permission_is_told_as_what_it_is(nobody, undrawn):
    folder, without_rights = nobody
    store_rows(folder, [text_row(64)])
    evaluation = folder / "evaluation"
    for path, mode, said in (
        (evaluation, 0o555, f"{evaluation}: results cannot be written there: no permission to write in"),
        (
            evaluation / "lengths.json",
            0o000,
            "lengths.json: cannot be read: Permission denied",
        ),
        (folder, 0o000, f"{evaluation}: results cannot be written there: Permission denied"),
    ):
        path.chmod(mode)
        with without_rights(), pytest.raises(InputError, match=said) as error:
            must_take_results(folder)
        assert "move it away" not in str(error.value)
        path.chmod(0o755)
