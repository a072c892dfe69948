"""A table of stored runs holds what a run folder holds, and is compared as run folders are."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from zoo.comparison import stored
from zoo.comparison.frame import load
from zoo.comparison.runs import read_runs
from zoo.errors import InputError
from zoo.evaluation.measurement import Measurement, Row, Targets, Units
from zoo.reports.report import build

ABOUT = {"encoding": "rope", "seed": 3, "train_length": 8, "checkpoint": "checkpoints/last.ckpt", "step": 5}
TARGETS = Targets(digest="d", count=3, max_tokens=40)
SCORES = Units(scores=[1, 0, 1 / 3])
NATS = Units(documents=[0, 4], nats=[1.5, None], tokens=[3, 2], bytes=[7, 6])
BLOCKS = Units(blocks=[0, 1], nats=[0.5, 0.25], tokens=[2, 2])


@pytest.fixture
def runs(write_run):
    values = {16: 2.0, 32: 2.5, 64: "too long"}
    kinds = [(encoding, seed) for encoding in ("rope", "alibi") for seed in (0, 1)]
    return read_runs([write_run(f"{name}{seed}", name, seed=seed, values=values) for name, seed in kinds])


def test_every_measurement_is_read_as_it_was_written(runs, tmp_path):
    rows = [
        Row(length=8, loss_nats=None, bits_per_byte=2.5, documents=2, units=NATS, blocks=BLOCKS),
        Row(length=16, accuracy=0.5, accuracy_low=0.0, units=SCORES, tokens_per_second=12.5, machine="m"),
        Row(length=32, note="too long"),
    ]
    changed = {"model.encoding.factor": 2.0, "model.window": [4, None]}
    about = {"run": "r", **ABOUT, "parameters": {"stride": 0.5}, "targets": TARGETS}
    several = (
        Measurement(**about, protocol="sliding", rows=rows),
        Measurement(**about, protocol="sliding", rows=rows[:1], changed=changed),
        Measurement(**about, protocol="per_position", rows=rows, axis="context"),
    )
    first = replace(runs[0], measurements=several, origin={"seconds": {"training": 1.5}})
    stored.write(tmp_path / "study.parquet", [first, runs[1]])
    assert stored.read(tmp_path / "study.parquet") == [first, runs[1]]


def test_a_table_is_compared_as_the_folders_are(runs, tmp_path):
    file = tmp_path / "study.parquet"
    for run in runs:
        stored.add(file, run)
    stored.add(file, runs[0])
    own, folders = load([file]), load([Path(run.path) for run in runs])
    key = ["run", "protocol", "length", "measure"]
    tables = [one.rows.sort_values(key, ignore_index=True) for one in (own, folders)]
    assert tables[0].equals(tables[1])
    assert sum(len(one.columns()["nats"]) for one in own.units.values()) > 0


def test_a_remedy_names_no_folder_of_a_stored_run(write_run, tmp_path):
    runs = read_runs([write_run("a"), write_run("b", "rope", recipe={"optimizer.lr": 0.5})])
    stored.write(tmp_path / "study.parquet", runs)
    (tmp_path / "runs").rename(tmp_path / "gone")
    for how, remedy in ({}, "--force"), ({"lengths": [8]}, "--forget"):
        with pytest.raises(InputError, match=remedy) as caught:
            build([tmp_path / "study.parquet"], **how)
        assert not re.search("--diff|zoo evaluate", str(caught.value))


def test_another_file_is_refused_by_name(tmp_path):
    file = tmp_path / "study.parquet"
    for content in (b"", b"PAR1 and no more"):
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"study\.parquet: not a table of stored runs"):
            read_runs([file])
    with pytest.raises(InputError, match="no such file"):
        read_runs([tmp_path / "absent.parquet"])
