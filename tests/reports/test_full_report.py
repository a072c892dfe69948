"""`zoo report`: what its page has of each run, and what it says where something is missing."""

import base64
import re
from pathlib import Path

import numpy as np
import pytest
from accessible import assert_accessible
from published import publish

from zoo import cli
from zoo.figures.training import POINTS, thinned, training_figure
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


def test_what_is_missing_is_said(write_run, undrawn, capsys):
    bare = write_run("bare", rows=[])
    (bare / "metrics.csv").unlink()
    assert command(bare, "--out", "bare.html") == 0
    page = Path("bare.html").read_text()
    assert "alibi: not evaluated yet" in page and "python -m zoo evaluate runs/bare" in page
    assert "runs/bare: nothing was logged to metrics.csv" in page
    assert "none was asked for (--sample-tokens 0)" in page
    # One that was evaluated beside one that was not.
    assert command(write_run("other", "rope"), bare, "--out", "bare.html") == 0
    assert "runs/bare was not evaluated" in Path("bare.html").read_text()


def test_the_curves_are_what_was_logged(run):
    columns, rows = read_metrics(run[0] / "metrics.csv")
    logged = {
        "train/loss": (np.arange(3), np.array([1.0, 1.0, 1.0])),
        "val/loss": (np.array([3]), np.array([1.0])),
    }
    details = details_of(full_report.read_runs(run), Drawn(), Drawn(), "The", 0)
    ((_, pictures),) = details.training
    assert [one.alternative for one in pictures] == ["Training loss", "Validation loss"]
    assert base64.b64decode(pictures[0].address.partition(",")[2]).startswith(b"<?xml")
    figure = training_figure({"runs/a": ("rope", logged), "runs/b": ("alibi", logged)})
    for panel in figure.panels:
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


@pytest.mark.parametrize("out, message", [
    ("report.txt", "its name ends in .html"), ("mine.html", "is there and no report of the zoo"),
    ("folder.html", "a folder; name a file"),
])  # fmt: skip
def test_no_other_file_is_replaced(run, undrawn, capsys, out, message):
    Path("mine.html").write_text("<p>mine</p>")
    Path("folder.html").mkdir()
    assert command(*run, "--out", out) == 2
    assert message in capsys.readouterr().err
    assert Path("mine.html").read_text() == "<p>mine</p>"
    assert command(*run) == 0 and command(*run) == 0  # its own it does replace


def test_runs_that_are_not_comparable_are_refused(write_run, undrawn, capsys):
    runs = [write_run("a", "rope"), write_run("b", "alibi", recipe={"optimizer.lr": 0.5})]
    assert command(*runs) == 2 and "not comparable" in capsys.readouterr().err
    assert not Path("report.html").exists()
    assert command(*runs, "--force") == 0
    assert "These runs are not comparable" in Path("report.html").read_text()


def test_an_imported_model_writes_and_its_encoding_is_drawn(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    publish("llama", tmp_path / "published")
    import_model(read_published(str(tmp_path / "published"), []), "llama", [], Path("llama"))
    assert cli.main(["report", "llama", "--prompt", "the cat <b>", "--sample-tokens", "40"]) == 0
    page = Path("report.html").read_text()
    assert "<b>the cat &lt;b&gt;</b>" in page and "<ins>" in page  # 32 tokens were trained
    assert '<tr><th scope="row">tokens seen</th><td class="text">not known</td></tr>' in page
    assert len(re.findall(r'<img src="data:image/svg', page)) >= 2


@pytest.mark.slow
def test_axe_finds_nothing(tmp_path, monkeypatch, browser):
    """With all that a page can have: two models, not comparable, with samples, pictures and attention."""
    monkeypatch.chdir(tmp_path)
    for kind in ("llama", "gpt2"):
        publish(kind, tmp_path / f"published_{kind}")
        import_model(read_published(str(tmp_path / f"published_{kind}"), []), kind, [], Path(kind))
    words = ("llama", "gpt2", "--force", "--prompt", "the cat", "--sample-tokens", "40", "--attention")
    assert cli.main(["report", *words]) == 0
    assert_accessible(browser, "report.html")
