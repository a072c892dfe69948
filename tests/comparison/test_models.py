"""Models with tokenizers of their own, compared in bits per byte of the same documents."""

import math

import pytest
import yaml
from cells import apart, column, first, labels

from zoo import cli
from zoo.errors import InputError
from zoo.evaluation.interval import interval_of_ratio
from zoo.evaluation.store import MEASUREMENTS
from zoo.reports.compare import compare
from zoo.reports.report import build
from zoo.reports.text import console, markdown

NATS = [20.0, 31.0, 18.0, 44.0]
BYTES = [60, 90, 63, 120]


def units(factor=1.0, sizes=BYTES, documents=(0, 1, 2, 3), tokens=5):
    nats = [factor * one for one in NATS]
    return {"documents": [*documents], "nats": nats, "tokens": [tokens] * 4, "bytes": sizes}


@pytest.fixture
def model(write_run, row_of, edit_rows):
    """A model with the units of its documents: `model("a", units(), lengths=(16, 32))`."""

    def model(name, own, lengths=(16, 32), protocol="nonoverlapping", recipe=None, card=None, **more):
        own_card = {"fingerprint.tokenizer": name[0] * 64, "parameters.total": 1000 + len(name)}
        run = write_run(name, recipe=recipe, card=own_card | (card or {}))
        made = yaml.safe_load((run / "recipe.yaml").read_text())
        about = {"targets": name[0] * 12, **more}
        rows = [row_of(made, n, 2.0, protocol, **about) | {"units": own} for n in lengths]
        edit_rows(run, lambda _: rows)
        return run

    return model


def values(report):
    (panel,) = report.panels
    return {label: tuple(column(panel, label)) for label in labels(panel)}


def test_only_documents_that_all_read_the_same_bytes_of_count(model):
    # Of its first document it was not asked for the first token, and its text ended earlier.
    runs = [model("ours", units()), model("theirs", units(1.1, [57, 90, 63, 40], tokens=3))]
    report = build(runs, models=True)
    expected = (31.0 + 18.0) / (90 + 63) / math.log(2)
    assert values(report)["ours"] == (pytest.approx(expected),) * 2
    assert values(report)["theirs"] == (pytest.approx(1.1 * expected),) * 2
    assert first(report, "measure", "reference") == [("bits_per_byte", "ours")] and report.subject == "model"
    one = apart(report.summary, "theirs", 16)
    expected = [0.1 * n / math.log(2) for n in (31.0, 18.0)]
    assert (one.low, one.high) == pytest.approx(interval_of_ratio(expected, [90, 63]))
    said = " ".join(report.caveats)
    assert "2 of up to 4 documents were scored by all in the same bytes" in said
    assert "bytes per token: 15.30 for ours, 25.50 for theirs" in said


def test_models_are_compared_by_their_differences_and_not_by_encoding(model, capsys, tmp_path):
    runs = [model("ours", units()), model("theirs", units(1.1), recipe={"model.num_layers": 2})]
    compare(runs, out=tmp_path / "out", models=True)
    output = capsys.readouterr().out
    assert "models are compared, not encodings: they differ in size, parameters, tokenizer" in output
    assert "size: 1 layers of width 16, 2 heads in ours; 2 layers of width 16, 2 heads in theirs" in output
    assert "this compares models, not their encodings" in output
    assert "python -m zoo compare --models" in build(runs, models=True).command
    words = (tmp_path / "out" / "compare.md").read_text() + (tmp_path / "out" / "index.html").read_text()
    assert "each encoding" not in words
    assert "as models, in bits per byte" in (tmp_path / "out" / "compare.csv").read_text()


def test_one_that_failed_has_no_value(model):
    broken = units()
    broken["nats"] = [20.0, None, 18.0, 44.0]
    report = build([model("ours", units()), model("theirs", broken)], models=True)
    assert values(report)["theirs"] == (None, None) and values(report)["ours"][0] > 0
    assert "–" in console(report) and "theirs" in markdown(report)


def test_a_text_that_one_model_alone_scored_is_left_out(model, edit_rows, edit):
    runs = [model("ours", units()), model("theirs", units(1.1))]
    before = values(build(runs, models=True))
    novels = {"parameters": {"data": "novels"}, "targets": "e" * 12}
    edit_rows(runs[0], lambda rows: rows + [row | novels for row in rows])
    for file in (runs[0] / MEASUREMENTS).glob("*.json"):
        if "novels" in file.read_text():
            edit(file, lambda one: one | {"targets": one["targets"] | {"text": "e" * 12}})
    assert values(build(runs, models=True)) == before


def test_different_texts_are_refused(model, capsys):
    runs = [model("ours", units()), model("theirs", units(), card={"fingerprint.corpus": "f" * 64})]
    with pytest.raises(
        InputError, match=r"the text cccccccccccc for ours alone.* the text ffffffffffff for theirs alone"
    ):
        build(runs, models=True)
    assert cli.main(["compare", "--models", *map(str, runs)]) == 2
    assert "no scores in common" in capsys.readouterr().err


def test_nothing_in_common_is_refused_with_the_command(model):
    runs = [model("ours", units()), model("theirs", units(sizes=[1, 2, 3, 4]))]
    with pytest.raises(
        InputError, match=r"0 of up to 4 documents were scored .* same bytes; .*max_tokens.*\); do it with: "
    ):
        build(runs, models=True)
    third = model("third", units(), protocol="sliding")
    with pytest.raises(InputError, match=r"sliding was measured on the text c{12} for third alone"):
        build([runs[0], third], models=True)
    with pytest.raises(InputError, match="missing models"):
        build(runs[:1], models=True)


def test_bins_of_one_window_are_not_compared(model):
    runs = [model(name, units(), protocol="per_position") for name in ("ours", "theirs")]
    with pytest.raises(InputError, match="these models have no scores in common"):
        build(runs, models=True)
