"""The pages of results hold the numbers of the stored measurements."""

import json
import math
import re
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest
import yaml

import leaderboard
import results
from board.correlation import interval, spearman
from board.measured import SHOWN
from board.pairs import differences_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "scripts" / "results"
STORED = RESULTS / "max_index" / "measurements"
COPY = RESULTS / "copy" / "measurements"
FLIP_FLOP = RESULTS / "flip_flop" / "measurements"
TEXT = RESULTS / "text" / "measurements"
ENCODINGS = ("alibi", "rope", "t5")
TEXTS = ("none", "rope", "t5", "deberta", "drope")
SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of a few entries: in max_index three encodings, of which one lacks the last seed."""
    folder = tmp_path_factory.mktemp("board")
    stored = folder / "stored"
    for name, files in (
        ("max_index", [f"{name}_seed{seed}" for name in ENCODINGS for seed in SEEDS]),
        ("copy", [file.stem for file in COPY.glob("*_seed0.json") if file.stem != "path_seed0"]),
        ("flip_flop", [f"{name}_seed0" for name in ("rope", "none", "alibi")]),
        ("flip_flop_log_n", ["rope_seed0", "none_seed0"]),
        ("selective_copy", ["rope_seed0", "fox_seed0"]),
        ("selective_copy_start", ["fox_seed0"]),
        ("text", [f"{name}_seed{seed}" for name in TEXTS for seed in SEEDS]),
    ):
        (stored / name / "measurements").mkdir(parents=True)
        for file in files:
            shutil.copy(RESULTS / name / "measurements" / f"{file}.json", stored / name / "measurements")
    (stored / "max_index" / "measurements" / f"t5_seed{SEEDS[-1]}.json").unlink()
    shutil.copytree(results.STUDIES, folder / "studies")
    for file, names in (("01_max_index.yaml", ENCODINGS), ("08_text.yaml", TEXTS)):
        study = yaml.safe_load((folder / "studies" / file).read_text())
        changed = study | {"encodings": {seed: [*names] for seed in SEEDS}, "after_training": {}}
        (folder / "studies" / file).write_text(yaml.safe_dump(changed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "STUDIES", folder / "studies")
        leaderboard.main(["--out", str(folder / "out"), "--stored", str(stored)])
    return folder / "out"


def row_of(file, length):
    rows = json.loads(file.read_text())["measurements"][0]["rows"]
    return next(row for row in rows if row["length"] == length)


def accuracies(encoding, length, measure="accuracy"):
    """Of the seeds of which all encodings are stored."""
    return [row_of(STORED / f"{encoding}_seed{seed}.json", length)[measure] for seed in SEEDS[:-1]]


def cells(page, head):
    """The cells of a table by the name in its first or second column; `head` is in its first row."""
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    start = next(index for index, line in enumerate(lines) if head in line)
    column, table = lines[start].index(head), {}
    for line in lines[start + 2 :]:
        if len(line) != len(lines[start]) or "---" in line[0]:
            break
        table[line[lines[start].index("encoding")]] = line[column]
    return table


def test_the_leaderboard_has_the_means_over_seeds(pages):
    text = (pages / "leaderboard.md").read_text()
    for head, length in (("max_index 1x", 64), ("max_index 4x", 256)):
        found = cells(text, head)
        for name in ENCODINGS:
            assert found[name] == f"{statistics.fmean(accuracies(name, length)):.2f}"


def test_the_short_table_has_cells_of_the_long_one(pages):
    long, short = (pages / "leaderboard.md").read_text().split("most used encodings")
    for head in ("flip_flop 4x", "parameters", "step time"):
        found, every = cells(short, head), cells(long, head)
        assert [*found] == [name for name in every if name in SHOWN]
        for name, cell in found.items():
            assert cell.partition("<")[0] == every[name].partition("<")[0].partition(" (")[0]
    assert (pages / "leaderboard.png").stat().st_size > 10_000


def test_long_answers_are_ranked_by_their_tokens(pages):
    found = cells((pages / "leaderboard.md").read_text(), "copy 4x")
    shares = {}
    for name in found:
        row = row_of(COPY / f"{name}_seed0.json", 96)
        if row.get("note"):
            assert found[name].startswith("–")
        else:
            shares[name] = row["token_accuracy"]
            assert found[name] == f"{row['accuracy']:.2f} ({shares[name]:.2f})"
    assert len(found) == 24 and [name for name in found if name not in shares] == ["learned"]
    one = {name: row_of(COPY / f"{name}_seed0.json", 24)["token_accuracy"] for name in found}
    order = [*found]  # of the other tasks too few encodings are stored
    able = [name for name in order if name in shares and one[name] >= 0.8]
    assert order[: len(able)] == sorted(able, key=shares.get, reverse=True)
    assert {"learned", "sandwich", "cape", "shape"} == set(order[len(able) :])


def test_max_index_lists_answers_beyond_the_trained_length(pages):
    text = (pages / "max_index.md").read_text().partition("## Beyond the trained length")[2]
    for name in ENCODINGS:
        expected = statistics.fmean(accuracies(name, 512, "accuracy_beyond"))
        assert cells(text, "512")[name] == f"{expected:.2f}"


def test_a_question_shows_its_encodings_alone(pages):
    text = (pages / "question_rope_flip_flop.md").read_text().partition("## accuracy")[2]
    found = cells(text, "192")
    assert found.keys() == {"rope", "none"}
    for name, cell in found.items():
        value = row_of(FLIP_FLOP / f"{name}_seed0.json", 192)["accuracy"]
        assert cell.strip("*").startswith(f"{value:.3f} (")
    assert not (pages / "question_far_recall.md").exists()


def test_a_page_lists_each_seed_and_the_missing_ones(pages):
    text = (pages / "max_index.md").read_text()
    assert f"seeds {SEEDS[-1]}." in text and "Not measured yet" not in text
    assert re.search(r"Not measured yet: .*\bpath\b", (pages / "copy.md").read_text())
    (line,) = re.findall(r"^\| rope \| .* of .*$", text, re.MULTILINE)
    values = accuracies("rope", 512)
    won = sum(value >= 0.95 for value in values)
    listed = ", ".join(f"{value:.2f}" for value in sorted(values, reverse=True))
    assert line.rstrip(" |").endswith(f"{statistics.median(values):.2f} ({listed})")
    assert f"{won} of 2 (" in line.split(" | ")[-1]
    assert (pages / "max_index.png").stat().st_size > 10_000


def test_rank_correlation_is_pearsons_of_the_ranks():
    rng = np.random.default_rng()
    pairs = rng.permuted(np.arange(24.0).reshape(2, 12), axis=1).T
    distance = sum((a - b) ** 2 for a, b in zip(*np.argsort(np.argsort(pairs, 0), 0).T, strict=True))
    assert spearman(pairs) == pytest.approx(1 - 6 * distance / (12 * (12**2 - 1)))
    assert spearman(np.array([[1.0, 2.0], [2.0, 5.0], [3.0, 9.0]])) == pytest.approx(1)
    assert math.isnan(spearman(np.array([[1.0, 2.0], [1.0, 5.0], [1.0, 9.0]])))


def test_drope_has_no_row(pages):
    assert (COPY / "drope_seed0.json").exists()
    for page in ("leaderboard.md", "copy.md", "text.md"):
        assert not re.search(r"^\|.*\bdrope\b", (pages / page).read_text(), re.MULTILINE)


def text_rows(encoding, protocol, seed):
    content = json.loads((TEXT / f"{encoding}_seed{seed}.json").read_text())["measurements"]
    return next(one["rows"] for one in content if one["protocol"] == protocol and not one.get("changed"))


def test_the_effective_length_is_that_of_sliding_windows(pages):
    found = cells((pages / "leaderboard.md").read_text(), "effective length")
    for name in ("none", "rope", "t5", "deberta"):
        each = []
        for seed in SEEDS:
            losses = [row["loss_nats"] for row in text_rows(name, "sliding", seed)]
            kept = [loss <= losses[0] + 0.05 for loss in losses]
            each.append(256 * 2 ** (kept.index(False) - 1))
        listed = f" ({', '.join(map(str, each))})" * (len({*each}) > 1)
        assert found[name].endswith(listed) and int(found[name].partition(" ")[0]) in each
    assert "(256, 512, 256)" in found["t5"]


def test_repeats_are_a_difference_between_far_and_near_ones(pages):
    text = (pages / "leaderboard.md").read_text()
    found = cells(text, "repeats beyond less within 1x")
    for name in ("none", "rope"):
        changes = []
        for seed in SEEDS:
            sums = {far: [0.0, 0.0] for far in (False, True)}
            for row in text_rows(name, "repeats", seed):
                sums[row["length"] > 256][0] += sum(row["units"]["nats"]) / math.log(2)
                sums[row["length"] > 256][1] += sum(row["units"]["bytes"])
            changes.append(sums[True][0] / sums[True][1] - sums[False][0] / sums[False][1])
        margin = 4.303 * statistics.stdev(changes) / math.sqrt(3)
        value, low, high = (float(one) for one in re.findall(r"[-+]\d\.\d+", found[name]))
        ends = statistics.fmean(changes) - margin, statistics.fmean(changes) + margin
        assert (value, low, high) == pytest.approx((statistics.fmean(changes), *ends), abs=6e-4)
    assert "997 targets" in text and "65,536 targets in 17 documents" in text


def test_parameters_are_relative_to_none(pages):
    found = cells((pages / "leaderboard.md").read_text(), "parameters")
    assert found["deberta"].startswith("1.20") and found["none"] == "1.00 (1.00)"


def test_the_table_of_starts_has_the_stored_accuracies(pages):
    text = (pages / "leaderboard.md").read_text()
    rows = json.loads((RESULTS / "selective_copy_start" / "measurements" / "fox_seed0.json").read_text())
    values = [f"{row['accuracy']:.2f}" for row in rows["measurements"][0]["rows"]]
    assert cells(text, "from 0.125")["fox"] == ", ".join(values) and float(values[0]) > 0.9


def test_a_change_of_a_setting_is_paired_by_seed():
    """The differences of log n have the means of the stored values, and an interval around them."""
    named = {study.name: study for study in results.read_studies(results.STUDIES)}
    page = differences_table(named["text_log_n"], [named["text"]], "nonoverlapping", results.OUT)
    found = cells(page, "256")
    assert found.keys() == {"none", "rope", "rope_clipped"}
    for name, cell in found.items():
        changes = []
        for seed in SEEDS:
            content = json.loads(
                (RESULTS / "text_log_n" / "measurements" / f"{name}_seed{seed}.json").read_text()
            )
            after = next(
                one["rows"][0]["bits_per_byte"]
                for one in content["measurements"]
                if one["protocol"] == "nonoverlapping" and not one.get("changed")
            )
            changes.append(after - text_rows(name, "nonoverlapping", seed)[0]["bits_per_byte"])
        value, low, high = (float(one) for one in re.findall(r"[-+]\d\.\d+", cell))
        assert value == pytest.approx(statistics.fmean(changes), abs=6e-4) and low < min(changes) < high


def test_clones_do_not_narrow_the_interval_of_a_correlation():
    rng = np.random.default_rng(1)
    pairs = {f"{kind}{index}": tuple(rng.random(2)) for kind in "abcde" for index in range(3)}
    families = {name: name[0] for name in pairs}
    clones = {name + "x": pair for name, pair in pairs.items()}
    low, high = interval(pairs, families)
    assert -1 <= low < high <= 1
    assert interval(pairs | clones, families | {name: name[0] for name in clones}) == pytest.approx(
        (low, high)
    )
