"""The curves of the training: the drawn numbers are the logged ones, on the page of a comparison too."""

import re

import numpy as np
import pandas as pd
import pytest

from zoo.comparison import stored
from zoo.comparison.runs import read_runs
from zoo.figures.training import POINTS, read_logged, thinned, training_curves
from zoo.reports.report import build
from zoo.reports.tables import report_page


def test_the_training_curves_are_the_logged_values(write_run):
    steps = pd.Index([0, 1, 2, 3], name="step")
    logged = pd.DataFrame({
        "train/loss": [1.0, 2.0, 1.5, np.nan], "val/loss": [np.nan, np.nan, np.nan, 1.0],
        "train/tokens_per_second": [90.0, 200.0, 100.0, np.nan],
        "lengths/accuracy/1024": [np.nan, np.nan, 0.5, np.nan],
        "lengths/accuracy/256": [np.nan, np.nan, 0.75, np.nan], "other": 1.0,
    }, steps)  # fmt: skip
    figure = training_curves({"runs/a": ("rope", logged), "runs/b": ("alibi", logged)})
    kinds = ["train/loss", "val/loss", "train/tokens_per_second"]
    kinds += ["lengths/accuracy/256", "lengths/accuracy/1024"]
    assert [trace.name for trace in figure.data] == ["rope (runs/a)", "alibi (runs/b)"] * len(kinds)
    titles = [figure.layout[f"yaxis{row}"].title.text for row in (4, 5)]
    assert titles == ["accuracy at 256", "accuracy at 1024"]
    for trace, kind in zip(figure.data, np.repeat(kinds, 2), strict=True):
        line = logged[kind].dropna()
        assert [*trace.x] == line.index.tolist() and [*trace.y] == line.tolist()
    assert read_logged(write_run("a"))["train/loss"].dropna().index.tolist() == [0, 1, 2]


def test_long_logs_are_thinned_to_means():
    line = thinned(pd.Series(np.arange(10.0 * POINTS), pd.RangeIndex(10 * POINTS, name="step"), name="y"))
    assert len(line) == POINTS and line.index[-1] == 10 * POINTS - 1
    assert line.index[:2].tolist() == [9, 19] and line.iloc[:2].tolist() == [4.5, 14.5]


@pytest.mark.parametrize("is_stored", [False, True])
def test_the_page_of_a_comparison_has_the_training(write_run, tmp_path, is_stored):
    runs = [write_run("a", "rope"), write_run("b", "alibi")]
    if is_stored:  # the folders are gone, and with them the training loss
        stored.write(tmp_path / "study.parquet", read_runs(runs))
        (tmp_path / "runs").rename(tmp_path / "gone")
        runs = [tmp_path / "study.parquet"]
    page = report_page(build(runs))
    assert re.findall(r"<h2>([^<]+)", page) == ["nonoverlapping", "Costs", "Training", "How to reproduce"]
    training = page.split("<h2>Training")[1]
    assert "validation loss (nats)" in training and "rope (runs" in training
    assert ("training loss (nats)" in training) != is_stored
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"<[^>]+(?:src|href)=\"(?!#|data:)", outside)
