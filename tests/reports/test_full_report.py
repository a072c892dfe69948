"""`zoo report`: the parts of its page, and the messages for missing data."""

import html
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from published import publish

from zoo import cli
from zoo.figures.training import POINTS, read_logged, thinned, training_curves
from zoo.pretrained.import_model import import_model, read_published
from zoo.reports import full_report


@pytest.fixture
def run(write_run):
    """Two runs that were evaluated, with differing encodings."""
    return [write_run("a", "rope"), write_run("b", "alibi", values={16: 1.4, 32: 1.7})]


@pytest.fixture
def undrawn(monkeypatch):
    """No pictures of encodings: they take a second."""
    monkeypatch.setattr(full_report, "_encodings", lambda runs: ["none here"])


def command(*words):
    return cli.main(["report", *map(str, words), "--sample-tokens", "0"])


def test_a_page_of_all_that_is_known(run, undrawn, capsys):
    assert command(*run) == 0
    page = Path("report.html").read_text()
    assert "done: report.html has all of 2 runs" in capsys.readouterr().out
    assert re.findall(r"<h2>([^<]+)", page) == [
        "nonoverlapping", "Costs", "Training", "The encodings", "Samples", "The runs",
        "How to reproduce",
    ]  # fmt: skip
    assert "python -m zoo report runs/a runs/b" in page
    assert "<summary>Card of runs/a</summary>" in page
    assert "<tr><th>recipe model.encoding</th><td>rope</td><td>alibi</td></tr>" in page
    # Recipes stand there in full, and can be unfolded.
    for one in run:
        recipe = (one / "recipe.yaml").read_text()
        assert f"<summary>Recipe of {one}</summary>" in page
        assert recipe.splitlines()[3] in page
    assert not re.search(
        r"<[^>]+(?:src|href)=\"(?!#|data:)", re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    )


def test_missing_data_is_reported_with_the_command(write_run, undrawn, capsys):
    bare = write_run("bare", rows=[])
    (bare / "metrics.csv").unlink()
    assert command(bare, "--out", "bare.html") == 0
    page = Path("bare.html").read_text()
    assert "alibi: not evaluated yet" in page and "python -m zoo evaluate runs/bare" in page
    assert "runs/bare: nothing was logged to metrics.csv" in page
    assert "none was asked for (--sample-tokens 0)" in page
    # One run was evaluated, the other was not.
    assert command(write_run("other", "rope"), bare, "--out", "bare.html") == 0
    assert "runs/bare: not evaluated" in Path("bare.html").read_text()


def test_the_training_curves_are_the_logged_values(run):
    steps = pd.Index([0, 1, 2, 3], name="step")
    logged = pd.DataFrame({
        "train/loss": [1.0, 2.0, 1.5, np.nan], "val/loss": [np.nan, np.nan, np.nan, 1.0],
        "lengths/accuracy/1024": [np.nan, np.nan, 0.5, np.nan],
        "lengths/accuracy/256": [np.nan, np.nan, 0.75, np.nan], "other": 1.0,
    }, steps)  # fmt: skip
    figure = training_curves({"runs/a": ("rope", logged), "runs/b": ("alibi", logged)})
    assert [trace.name for trace in figure.data] == ["rope (runs/a)", "alibi (runs/b)"] * 4
    kinds = ["train/loss", "val/loss", "lengths/accuracy/256", "lengths/accuracy/1024"]
    titles = [figure.layout[f"yaxis{row}"].title.text for row in (3, 4)]
    assert titles == ["accuracy at 256", "accuracy at 1024"]
    for trace, kind in zip(figure.data, np.repeat(kinds, 2), strict=True):
        line = logged[kind].dropna()
        assert [*trace.x] == line.index.tolist() and [*trace.y] == line.tolist()
    assert read_logged(run[0])["train/loss"].dropna().index.tolist() == [0, 1, 2]


def test_long_logs_are_thinned_to_means():
    line = thinned(pd.Series(np.arange(10.0 * POINTS), pd.RangeIndex(10 * POINTS, name="step"), name="y"))
    assert len(line) == POINTS and line.index[-1] == 10 * POINTS - 1
    assert line.index[:2].tolist() == [9, 19] and line.iloc[:2].tolist() == [4.5, 14.5]


def test_no_other_file_is_replaced(run, undrawn, capsys):
    Path("mine.html").write_text("<p>mine</p>")
    Path("folder.html").mkdir()
    for out in ("report.txt", "mine.html", "folder.html"):
        assert command(*run, "--out", out) == 2
        assert out in capsys.readouterr().err
    assert Path("mine.html").read_text() == "<p>mine</p>"
    assert command(*run) == 0 and command(*run) == 0  # a report of the zoo is replaced


def test_runs_that_are_not_comparable_are_refused(write_run, undrawn, capsys):
    runs = [write_run("a", "rope"), write_run("b", "alibi", recipe={"optimizer.lr": 0.5})]
    assert command(*runs) == 2 and "not comparable" in capsys.readouterr().err
    assert not Path("report.html").exists()
    assert command(*runs, "--force") == 0
    assert "NOT COMPARABLE" in Path("report.html").read_text()


def test_the_report_of_an_imported_model(tmp_path, monkeypatch, capsys, open_page):
    monkeypatch.chdir(tmp_path)
    publish("llama", tmp_path / "published")
    import_model(read_published(str(tmp_path / "published"), []), "llama", [], Path("llama"))
    assert cli.main(["report", "llama", "--prompt", "the cat <b>", "--sample-tokens", "40"]) == 0
    page = Path("report.html").read_text()
    assert "the cat &lt;b&gt;" in page and " ┃ " in page  # 32 tokens were trained
    assert '"tokens_seen": null' in html.unescape(page)
    shown = open_page("report.html")
    assert shown.locator("img[src^='data:image/svg']").first.evaluate("one => one.naturalWidth") > 100
