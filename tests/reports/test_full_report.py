"""`zoo report`: the parts of its page, and the messages for missing data."""

import base64
import re
from pathlib import Path

import numpy as np
import pytest
from published import publish

from zoo import cli
from zoo.figures.training import POINTS, thinned, training_panels
from zoo.pretrained.import_model import import_model
from zoo.pretrained.published import read_published
from zoo.reports import full_report
from zoo.reports.details import Drawn, details_of
from zoo.runs.metrics_csv import read_metrics


@pytest.fixture
def run(write_run):
    """Two runs that were evaluated, with differing encodings."""
    return [write_run("a", "rope"), write_run("b", "alibi", values={16: 1.4, 32: 1.7})]


@pytest.fixture
def undrawn(monkeypatch):
    """No pictures of encodings: they take a second."""
    monkeypatch.setattr(full_report, "_encodings", lambda runs: Drawn(why_not=("none here",)))


def command(*words):
    return cli.main(["report", *map(str, words), "--sample-tokens", "0"])


def test_a_page_of_all_that_is_known(run, undrawn, capsys):
    assert command(*run) == 0
    page = Path("report.html").read_text()
    assert "done: report.html has all of 2 runs" in capsys.readouterr().out
    headings = re.findall(r'<h2 id="[a-z0-9-]+">(?:<span[^>]*>.*?</span>)?([^<]+)', page)
    assert [one.strip() for one in headings] == [
        "What all runs share", "Verdict", "nonoverlapping", "Costs", "Training", "The encodings",
        "Inside the models", "Samples", "The runs", "How to reproduce",
    ]  # fmt: skip
    assert "python -m zoo report runs/a runs/b" in page
    row = '<tr><th scope="row">model.encoding</th>'
    assert f'{row}<td class="text">rope</td><td class="text">alibi</td></tr>' in page
    # Recipes stand there in full, and can be unfolded.
    for one in run:
        recipe = (one / "recipe.yaml").read_text()
        assert f"<summary>Recipe of {one}</summary>" in page
        assert recipe.splitlines()[3] in page
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", page)


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
    assert "runs/bare was not evaluated" in Path("bare.html").read_text()


def test_the_training_curves_are_the_logged_values(run):
    columns, rows = read_metrics(run[0] / "metrics.csv")
    logged = {
        "train/loss": (np.arange(3), np.array([1.0, 1.0, 1.0])),
        "val/loss": (np.array([3]), np.array([1.0])),
    }
    details = details_of(full_report.read_runs(run), Drawn(), Drawn(), "The", 0)
    ((_, pictures),) = details.training
    assert [one.alternative for one in pictures] == ["Training loss", "Validation loss"]
    assert base64.b64decode(pictures[0].address.partition(",")[2]).startswith(b"<?xml")
    for panel in training_panels({"runs/a": ("rope", logged), "runs/b": ("alibi", logged)}):
        steps, values = logged[panel.key]
        for name in ("runs/a", "runs/b"):
            assert panel.data[f"{name}: step"].tolist() == steps.tolist()
            assert panel.data[name].tolist() == values.tolist()
    assert {row["step"] for row in rows} == {"0", "1", "2", "3"} and "val/loss" in columns


def test_long_logs_are_thinned_to_means():
    steps, values = thinned(np.arange(10 * POINTS), np.arange(10.0 * POINTS))
    assert len(steps) == len(values) == POINTS
    assert (
        steps[:2].tolist() == [9, 19] and values[:2].tolist() == [4.5, 14.5] and steps[-1] == 10 * POINTS - 1
    )


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
    assert "These runs are not comparable" in Path("report.html").read_text()


def test_the_report_of_an_imported_model(tmp_path, monkeypatch, capsys, open_page):
    monkeypatch.chdir(tmp_path)
    publish("llama", tmp_path / "published")
    import_model(read_published(str(tmp_path / "published"), []), "llama", [], Path("llama"))
    assert cli.main(["report", "llama", "--prompt", "the cat <b>", "--sample-tokens", "40"]) == 0
    page = Path("report.html").read_text()
    assert "<b>the cat &lt;b&gt;</b>" in page and "<ins>" in page  # 32 tokens were trained
    assert '<tr><th scope="row">tokens seen</th><td class="text">not known</td></tr>' in page
    pictures = open_page("report.html").locator("img[src^='data:image/svg']")
    assert pictures.count() >= 2 and pictures.first.evaluate("one => one.naturalWidth") > 100
