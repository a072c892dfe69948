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
STORED = ROOT / "scripts" / "results" / "max_index" / "measurements"
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
    """The pages of three encodings, of which one lacks a seed."""
    folder = tmp_path_factory.mktemp("board")
    stored = folder / "stored" / "max_index" / "measurements"
    stored.mkdir(parents=True)
    for file in STORED.glob("*.json"):
        if file.stem.rpartition("_seed")[0] in ENCODINGS:
            shutil.copy(file, stored)
    (stored / "t5_seed2.json").unlink()
    script.main(["--out", str(folder / "out"), "--stored", str(folder / "stored")])
    return folder / "out"


def accuracies(encoding, length):
    files = sorted(STORED.glob(f"{encoding}_seed*.json"))
    assert len(files) == 3
    rows = [json.loads(file.read_text())["measurements"][0]["rows"] for file in files]
    return [next(row["accuracy"] for row in own if row["length"] == length) for own in rows]


def test_the_leaderboard_has_the_means_over_seeds(pages):
    text = (pages / "leaderboard.md").read_text()
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    found = {line[1]: line[2:4] for line in lines[2:]}
    assert found == {
        name: [f"{statistics.fmean(accuracies(name, length)):.2f}" for length in (64, 256)]
        for name in ("alibi", "rope")
    }


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
