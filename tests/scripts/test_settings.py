"""The setting of a task lets most encodings learn; of several such settings it has the least loss."""

import pytest

import results
from board.settings import PREFIX, ranked, read_grid, settings_tables
from results import Study
from zoo.comparison import stored
from zoo.comparison.run_info import RunInfo
from zoo.evaluation.measurement import Measurement, Row, Targets

LRS, STARTS = ["1e-3", "3e-3"], [0.02, "auto"]
# (share of whole answers, validation loss) of rope and alibi in each setting.
MEASURED = {
    ("1e-3", "0.02"): [(0.95, 0.2), (0.2, 2.0)],
    ("1e-3", "auto"): [(0.91, 0.4), (0.92, 0.4)],
    ("3e-3", "0.02"): [(1.0, 0.01), (0.89, 0.1)],
    ("3e-3", "auto"): [(0.99, 0.1), (0.95, 0.3)],
}


@pytest.fixture
def study():
    grid = {"optimizer.lr": LRS, "model.init_std": STARTS}
    base, encodings = str(results.ROOT / "recipes/base/copy.yaml"), {0: ["rope", "alibi"]}
    return Study("setting_copy", base, encodings, lengths=[24], protocols=["accuracy"], grid=grid)


def store(study, folder, entries):
    for entry in entries:
        values = tuple(change.partition("=")[2] for change in entry.setting)
        accuracy, loss = MEASURED[values][entry.encoding == "alibi"]
        targets = Targets(digest="d", count=9)
        about = {"run": entry.path, "encoding": entry.encoding, "seed": 0, "train_length": 24}
        about |= {"checkpoint": "checkpoints/last.ckpt", "step": 250, "protocol": "accuracy"}
        rows = [Row(length=24, accuracy=accuracy)]
        measurement = Measurement(**about, parameters={}, targets=targets, rows=rows)
        recipe = study.recipe(entry.encoding, 0, entry.setting).as_dict()
        losses = {100: loss + 1, 200: loss}
        run = RunInfo(entry.path, recipe, {}, (measurement,), validation=losses)
        stored.add(entry.table, run)


def test_most_encodings_that_learn_come_before_the_least_loss(study, tmp_path):
    entries = study.entries(tmp_path)
    assert len(entries) == 8 == len({entry.path for entry in entries})
    store(study, tmp_path, entries)
    order = ranked(read_grid(study, tmp_path))
    assert [(*setting, one.learned) for setting, one in order.iterrows()] == [
        ("optimizer.lr=3e-3", "model.init_std=auto", 2),
        ("optimizer.lr=1e-3", "model.init_std=auto", 2),
        ("optimizer.lr=3e-3", "model.init_std=0.02", 1),
        ("optimizer.lr=1e-3", "model.init_std=0.02", 1),
    ]
    assert order["loss"].tolist() == pytest.approx([0.2, 0.4, 0.055, 1.1])


def test_the_page_chooses_nothing_from_part_of_a_grid(study, tmp_path):
    entries = study.entries(tmp_path)
    store(study, tmp_path, entries[:-1])
    page = settings_tables([study], tmp_path)["setting_copy"]
    assert "7 of 8 measured; nothing is chosen yet" in page and "Chosen" not in page
    store(study, tmp_path, entries)
    page = settings_tables([study], tmp_path)["setting_copy"]
    assert "Chosen: `optimizer.lr=3e-3`, `model.init_std=auto`" in page
    assert "| 3e-3 | auto | 2 | 0.200 | 0.95 (0.300) | 0.99 (0.100) |" in page


def test_the_grid_of_every_task_leaves_longer_lengths_unread():
    grids = [study for study in results.read_studies(results.STUDIES) if study.grid]
    assert len(grids) == 15
    for study in grids:
        assert study.lengths == [study.recipe("none", 0).data.sequence_length], study.name


def test_a_base_recipe_has_the_chosen_setting():
    for study in results.read_studies(results.STUDIES):
        grid = read_grid(study, results.OUT) if study.name.startswith(PREFIX) else ()
        if len(grid) and len(grid) == len(study.entries(results.OUT)):
            assert study.recipe("none", 0, ranked(grid).index[0]) == study.recipe("none", 0), study.name
