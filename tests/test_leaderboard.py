"""The pages of results hold the numbers of the stored measurements."""

import importlib.util
import json
import math
import re
import shutil
import statistics
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "scripts" / "results"
STORED = RESULTS / "max_index" / "measurements"
COPY = RESULTS / "copy" / "measurements"
FLIP_FLOP = RESULTS / "flip_flop" / "measurements"
ENCODINGS = ("alibi", "rope", "t5")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("leaderboard", ROOT / "scripts" / "leaderboard.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["leaderboard"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["leaderboard"]


@pytest.fixture(scope="module")
def pages(script, tmp_path_factory):
    """The pages of two studies: three encodings, of which one lacks a seed, and one seed of all."""
    folder = tmp_path_factory.mktemp("board")
    stored = folder / "stored" / "max_index" / "measurements"
    stored.mkdir(parents=True)
    for file in STORED.glob("*.json"):
        if file.stem.rpartition("_seed")[0] in ENCODINGS:
            shutil.copy(file, stored)
    (stored / "t5_seed2.json").unlink()
    shutil.copytree(COPY, folder / "stored" / "copy" / "measurements", ignore=lambda *_: not_seed_0())
    answers = folder / "stored" / "flip_flop" / "measurements"
    answers.mkdir(parents=True)
    for name in ("rope", "none", "alibi"):
        shutil.copy(FLIP_FLOP / f"{name}_seed0.json", answers)
    script.main(["--out", str(folder / "out"), "--stored", str(folder / "stored")])
    return folder / "out"


def not_seed_0():
    return [file.name for file in COPY.iterdir() if not file.stem.endswith("_seed0")]


def row_of(file, length):
    rows = json.loads(file.read_text())["measurements"][0]["rows"]
    return next(row for row in rows if row["length"] == length)


def accuracies(encoding, length, measure="accuracy"):
    files = sorted(STORED.glob(f"{encoding}_seed*.json"))
    assert len(files) == 3
    return [row_of(file, length)[measure] for file in files]


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
        for name in ("alibi", "rope"):
            assert found[name] == f"{statistics.fmean(accuracies(name, length)):.2f}"
        assert found["t5"].startswith("–")


def test_long_answers_are_ranked_by_their_tokens(pages):
    found = cells((pages / "leaderboard.md").read_text(), "copy 4x")
    shares = {}
    for file in COPY.glob("*_seed0.json"):
        row, name = row_of(file, 96), file.stem.removesuffix("_seed0")
        if row.get("note"):
            assert found[name].startswith("–")
        else:
            shares[name] = row["token_accuracy"]
            assert found[name] == f"{row['accuracy']:.2f} ({shares[name]:.2f})"
    without = [name for name in found if name not in shares and name != "rope"]
    assert without == ["learned"]
    one = {
        name: row_of(COPY / f"{name}_seed0.json", 24)["token_accuracy"] for name in found if name != "rope"
    }
    order = [name for name in found if name not in ("alibi", "rope")]  # they have other tasks too
    able = [name for name in order if name in shares and one[name] >= 0.8]
    assert order[: len(able)] == sorted(able, key=shares.get, reverse=True)
    assert {"learned", "sandwich", "cape", "shape"} == set(order[len(able) :])


def test_max_index_lists_answers_beyond_the_trained_length(pages):
    text = (pages / "max_index.md").read_text().partition("## Beyond the trained length")[2]
    for name in ("alibi", "rope"):
        expected = statistics.fmean(accuracies(name, 512, "accuracy_beyond"))
        assert cells(text, "512")[name] == f"{expected:.2f}"


def test_a_question_shows_its_encodings_alone(pages):
    text = (pages / "question_rope_flip_flop.md").read_text().partition("## accuracy")[2]
    found = cells(text, "192")
    assert found.keys() == {"rope", "none"}
    for name, cell in found.items():
        value = row_of(FLIP_FLOP / f"{name}_seed0.json", 192)["accuracy"]
        assert cell.strip("*").startswith(f"{value:.3f} (")
    assert {file.stem for file in pages.glob("question_*")} == {"question_rope_flip_flop"}


def test_a_page_lists_each_seed_and_the_missing_ones(pages):
    text = (pages / "max_index.md").read_text()
    assert "Not measured yet:" in text and "t5 (seeds 2)" in text
    (line,) = re.findall(r"^\| rope \| .* of .*$", text, re.MULTILINE)
    values = accuracies("rope", 512)
    won = sum(value >= 0.95 for value in values)
    listed = ", ".join(f"{value:.2f}" for value in sorted(values, reverse=True))
    assert line.rstrip(" |").endswith(f"{statistics.median(values):.2f} ({listed})")
    assert f"{won} of 3 (" in line.split(" | ")[-1]
    assert (pages / "max_index.png").stat().st_size > 10_000


def test_rank_correlation_is_pearsons_of_the_ranks(script):
    rng = np.random.default_rng()
    pairs = rng.permuted(np.arange(24.0).reshape(2, 12), axis=1).T
    distance = sum((a - b) ** 2 for a, b in zip(*np.argsort(np.argsort(pairs, 0), 0).T, strict=True))
    assert script.spearman(pairs) == pytest.approx(1 - 6 * distance / (12 * (12**2 - 1)))
    assert script.spearman(np.array([[1.0, 2.0], [2.0, 5.0], [3.0, 9.0]])) == pytest.approx(1)
    assert math.isnan(script.spearman(np.array([[1.0, 2.0], [1.0, 5.0], [1.0, 9.0]])))
