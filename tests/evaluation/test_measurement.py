"""Measurements as a run folder keeps them: what replaces what, and what is not lost."""

import json
import threading

import pytest
from measured import rows_with_units

from zoo.errors import InputError
from zoo.evaluation.measurement import Measurement, Row, Units, flat_rows
from zoo.evaluation.store import MEASUREMENTS, read_measurements, store
from zoo.files import atomic_write

UNITS = Units.of_documents([0, 3], [1.5, float("inf")], [10, 12], [30.0, 31.0])


def measurement(*rows, targets="0a0a0a", **more):
    about = {
        "run": "tiny", "encoding": "alibi", "seed": 0, "train_length": 64, "step": 10,
        "checkpoint": "checkpoints/last.ckpt", "protocol": "sliding", "parameters": {"stride": 0.5},
        "targets": {"digest": targets, "count": 9},
    }  # fmt: skip
    return Measurement(**about | more, rows=list(rows))


def row(length=64, value=1.5, **more):
    return Row(length=length, tokens=22, loss_nats=value, loss_nats_low=None, units=UNITS, **more)


def values(folder):
    return [
        [(row.length, getattr(row, "loss_nats", None)) for row in one.rows]
        for one in read_measurements(folder)
    ]


def test_what_is_stored_is_read_again(tmp_path):
    assert read_measurements(tmp_path) == []
    one = measurement(row(64), Row(length=128, note="too long"))
    store(tmp_path, [one])
    assert read_measurements(tmp_path) == [one]
    first, second = rows_with_units([one])
    assert first["units"] == {"documents": [0, 3], "nats": [1.5, None], "tokens": [10, 12], "bytes": [30, 31]}
    assert first["loss_nats_low"] is None and first["targets"] == "0a0a0a" and "changed" not in first
    assert second["note"] == "too long" and "units" not in flat_rows([one])[0]


def test_blocks_take_the_place_of_documents_in_paired_differences(tmp_path):
    blocks = Units.of_documents([0, 1], [1.0, 0.5], [5, 6], None, "blocks")
    store(tmp_path, [measurement(row(64, blocks=blocks))])
    (one,) = read_measurements(tmp_path)
    assert one.rows[0].blocks == blocks and one.rows[0].units == UNITS
    assert rows_with_units([one])[0]["units"] == {"blocks": [0, 1], "nats": [1, 0.5], "tokens": [5, 6]}
    assert not {"units", "blocks"} & flat_rows([one])[0].keys()


@pytest.mark.parametrize("change", [
    {"protocol": "nonoverlapping"}, {"parameters": {"stride": 0.5, "split": "test"}},
    {"checkpoint": "checkpoints/best.ckpt"}, {"changed": {"model.encoding.factor": 4.0}},
    {"targets": "ffffff"},
])  # fmt: skip
def test_a_measurement_of_something_else_is_kept_beside(tmp_path, change):
    store(tmp_path, [measurement(row())])
    store(tmp_path, [measurement(row(value=9.0), **change)])
    assert sorted(values(tmp_path)) == [[(64, 1.5)], [(64, 9.0)]]
    store(tmp_path, [measurement(row(value=2.0))])
    assert sorted(values(tmp_path)) == [[(64, 2.0)], [(64, 9.0)]]


def test_a_measurement_repeated_replaces_its_rows_length_by_length(tmp_path):
    store(tmp_path, [measurement(row(64), row(256), parameters={"a": 1, "b": 2})])
    store(tmp_path, [measurement(row(128), row(256, 9.0), parameters={"b": 2, "a": 1})])
    assert values(tmp_path) == [[(64, 1.5), (128, 1.5), (256, 9.0)]]


def test_a_note_replaces_no_measured_row(tmp_path):
    store(tmp_path, [measurement(row(64), Row(length=128, note="out of memory"))])
    store(tmp_path, [measurement(Row(length=64, note="out of memory"), row(128))])
    assert values(tmp_path) == [[(64, 1.5), (128, 1.5)]]


def test_what_an_earlier_step_of_the_checkpoint_gave_goes(tmp_path):
    best = {"checkpoint": "checkpoints/best.ckpt"}
    store(tmp_path, [measurement(row(64)), measurement(row(64), **best), measurement(row(32), targets="ff")])
    store(tmp_path, [measurement(row(128, 3.0), step=20)])
    assert [(one.checkpoint, one.step) for one in read_measurements(tmp_path)] == [
        ("checkpoints/best.ckpt", 10), ("checkpoints/last.ckpt", 20),
    ]  # fmt: skip


def test_evaluations_that_end_at_once_lose_nothing(tmp_path):
    def end(number):
        store(tmp_path, [measurement(row(64 + number)), measurement(row(), protocol=f"p{number}")])

    threads = [threading.Thread(target=end, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, values(tmp_path))) == [1] * 6 + [6]


@pytest.mark.parametrize("damage", ["{", {"rows": [{"length": 4, "loss_nats": "low"}]}])
def test_damaged_measurements_are_wrong_input_that_names_the_file(tmp_path, damage):
    store(tmp_path, [measurement(row())])
    (file,) = (tmp_path / MEASUREMENTS).iterdir()
    content = damage if isinstance(damage, str) else json.dumps(json.loads(file.read_text()) | damage)
    atomic_write(file, content)
    with pytest.raises(InputError, match="move it away and evaluate again") as error:
        read_measurements(tmp_path)
    assert [problem.where.split(":")[0] for problem in error.value.problems] == [str(file)]
