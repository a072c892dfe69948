"""The zoo from Python: a run as an object, the commands as functions, their display in a notebook."""

import json
import re

import pandas as pd
import pytest
import torch
from tiny_recipes import MAX_INDEX

import zoo
from zoo.errors import InputError


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of a recipe, one for each of two encodings, evaluated at two lengths."""
    home = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        sets = ["evaluate.lengths=[8]", "trainer.enable_progress_bar=false"]
        made = [zoo.fit({**MAX_INDEX, "name": "first"}, sets)]
        made.append(zoo.fit(made[0].recipe, ["name=second", "model.encoding=none"]))
        zoo.evaluate(made, lengths=[8, 16])
        for run in made:
            run.path = run.path.absolute()
    return made


def test_a_run_is_read_from_its_folder(runs):
    run = zoo.open(str(runs[0].path))
    assert (run.path.name, run.recipe.name, run.recipe.as_dict()["model"]["encoding"]["name"]) == (
        "first",
        "first",
        "alibi",
    )
    assert run.card == json.loads((run.path / "card.json").read_text()) and run.card["steps"] == 6
    curves = run.curves
    assert curves.index.tolist() == [2, 4, 6] and curves.index.name == "step"
    assert curves["train/loss"].dtype == float and curves["train/loss"].notna().all()
    assert curves["val/loss"].notna().tolist() == [False, True, False]
    assert run.results["length"].tolist() == [8, 16] and run.results["accuracy"].between(0, 1).all()
    row = torch.randint(1, 19, (2, 8))
    assert torch.equal(run.model()(row), zoo.load(run.path)(row))
    best = zoo.load(run.path / "checkpoints" / "best.ckpt")
    assert torch.equal(run.model(best=True)(row), best(row))
    assert zoo.open(run.path / "checkpoints" / "last.ckpt").path.resolve() == run.path.resolve()
    assert repr(run) == f"zoo.open('{run.path}')"


def test_a_run_that_logged_nothing_and_measured_nothing_has_empty_tables(runs, tmp_path):
    (tmp_path / "bare").mkdir()
    for name in ("recipe.yaml", "card.json"):
        (tmp_path / "bare" / name).write_text((runs[0].path / name).read_text())
    bare = zoo.open(tmp_path / "bare")
    assert bare.curves.empty and bare.results.empty
    with pytest.raises(InputError, match=r"last\.ckpt: no such run or checkpoint"):
        bare.model()


def test_evaluate_gives_the_rows_and_stores_them(runs, capsys):
    rows = zoo.evaluate(runs[0], lengths=16, sets=["evaluate.samples=8"])
    assert isinstance(rows, pd.DataFrame) and rows["length"].tolist() == [16]
    stored = runs[0].results
    assert rows["accuracy"][0] in stored["accuracy"].tolist()
    assert "accuracy" in capsys.readouterr().out


def test_compare_has_a_table_a_picture_and_a_verdict(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    comparison = zoo.compare(runs, lengths=[8, 16])
    assert not [*tmp_path.iterdir()]
    table = comparison.table
    assert set(table["encoding"]) == {"alibi", "none"} and set(table["length"]) == {8, 16}
    assert table["mean"].between(0, 1).all() and "Verdict" in str(comparison)
    page = comparison._repr_html_()
    assert page.count("<img") == 1 and page.count("<table>") == page.count("</table>") >= 3
    assert "data:image/png;base64,iVBOR" in page and "alibi" in page and "none" in page
    zoo.compare([run.path for run in runs], "accuracy").save("compared")
    assert {"compare.csv", "index.html"} <= {file.name for file in (tmp_path / "compared").iterdir()}
    saved = pd.read_csv(tmp_path / "compared" / "compare.csv", keep_default_na=False, na_values=[""])
    assert set(saved.columns) == set(table.columns)


def test_results_are_a_row_for_each_measure(runs):
    rows = zoo.results(runs, lengths=[8])
    assert set(rows["run"]) == {str(run.path) for run in runs} and set(rows["length"]) == {8}
    accuracy = rows[rows["measure"] == "accuracy"].set_index("run")
    for run in runs:
        own = run.results.query("length == 8").iloc[0]
        assert accuracy.loc[str(run.path), ["value", "low", "high"]].tolist() == [
            own["accuracy"], own["accuracy_low"], own["accuracy_high"],
        ]  # fmt: skip


def test_wrong_input_raises_an_input_error(runs, monkeypatch):
    home = runs[0].path.parent.parent
    monkeypatch.chdir(home)
    (home / "x.yaml").write_text("model:\n  encoding: alibbi\n")
    for call, message in (
        (lambda: zoo.open("runs/frist"), "^runs/frist: no such run; did you mean runs/first"),
        (lambda: zoo.evaluate(runs, lengths=[0, 8, "16"]), r"^lengths: \[0, 8, '16'\]: lengths are numbers"),
        (lambda: zoo.evaluate([]), "^which runs"),
        (lambda: zoo.compare(runs, models=True), "^these models have no scores in common"),
        (lambda: zoo.fit("x.yaml"), "^x.yaml:2: model.encoding: no encoding 'alibbi'"),
    ):
        with pytest.raises(zoo.InputError, match=re.compile(message, re.MULTILINE)):
            call()
