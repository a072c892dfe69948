"""The tables: cells, bold values and notes, in Markdown, on a terminal and as CSV."""

import csv
import io

import numpy as np
import pytest
from known_units import HARD, TOKENS
from measured import measurements_of
from rows import text_row

from zoo.evaluation.interval import interval_of_ratio
from zoo.reports.report import build, run_report
from zoo.reports.tables import MOST, tables
from zoo.reports.text import console, markdown


def cells(text, title):
    """The cells of the Markdown table under a title, without the heading's line."""
    block = text.split(f"## {title}")[1].split("\n\n")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
    return [rows[0], *rows[2:]]


def rows_of(report):
    return [*csv.DictReader(io.StringIO(report.table.to_csv(index=False)))]


@pytest.fixture
def matrix(write_run):
    """Two encodings of three seeds and one of a single one; their values [seed, length]."""
    rng = np.random.default_rng(0)
    values = {
        "alibi": rng.uniform(1, 3, (3, 2)),
        "rope": rng.uniform(1, 3, (3, 2)),
        "none": np.array([[9.0, 1.1]]),
    }
    runs = [
        write_run(f"{encoding}_{seed}", encoding, seed, {16: row[0], 32: row[1]})
        for encoding, of_seeds in values.items()
        for seed, row in enumerate(of_seeds.tolist())
    ]
    return runs, values


def test_a_cell_is_the_mean_and_the_spread(matrix):
    runs, values = matrix
    header, *rows = cells(markdown(build(runs)), "nonoverlapping")
    assert header == ["encoding", "16 (trained)", "32"]
    for label, *shown in rows:
        for column, cell in enumerate(shown):
            # One kind for all: over documents, since one encoding has a single seed.
            mean = values[label][:, column].mean()
            low, high = interval_of_ratio(mean * np.array(TOKENS) * HARD, np.array(TOKENS))
            assert cell.replace("*", "") == f"{mean:.3f} ({low:.3f}–{high:.3f})"


def test_bold_is_the_best_of_each_column_and_nothing_else(matrix):
    runs, values = matrix
    _, *rows = cells(markdown(build(runs)), "nonoverlapping")
    for column in (0, 1):
        best = min(values, key=lambda label: values[label][:, column].mean())
        assert [row[0] for row in rows if "**" in row[column + 1]] == [best]


def test_equals_are_tied_and_neither_they_nor_one_alone_are_bold(write_run):
    runs = [
        write_run("a", "alibi", values={16: 1.5, 32: 1.6}),
        write_run("b", "rope", values={16: 1.5, 32: "ends"}),
        write_run("c", "none", values={16: 1.6, 32: "ends"}),
    ]
    text = markdown(build(runs))
    assert "**" not in text
    _, *rows = cells(text, "nonoverlapping: difference")
    assert {row[0]: (row[1], row[-1]) for row in rows} == {
        "alibi": ("reference", "1="),
        "rope": ("0.000 (0.000 to 0.000) tied", "1="),
        "none": (rows[2][1], "3"),
    }
    assert rows[2][1].startswith("+0.100 (+0.")


def test_a_missing_value_is_a_dash_with_a_note(write_run):
    runs = [
        write_run("a", "alibi", values={16: 1.5, 32: 1.6, 64: None}),
        write_run("b", "learned", values={16: 1.5, 32: "the encoding ends", 64: "the encoding ends"}),
        write_run("c", "none", values={16: 1.5}),
    ]
    text = markdown(build(runs))
    _, *rows = cells(text, "nonoverlapping")
    marks = {"¹": "not finite", "²": "the encoding ends", "³": "not evaluated"}
    for mark, note in marks.items():
        assert f"\n{mark} {note}  " in text
    shown = {row[0]: row[2:] for row in rows}
    assert shown["learned"] == ["–²", "–²"] and shown["none"] == ["–³", "–³"]
    assert shown["alibi"][0].startswith("1.600 (1.5") and shown["alibi"][1] == "–¹"


def test_a_mean_without_some_seeds_has_a_mark_beside_it(write_run):
    runs = [write_run("a"), write_run("b", seed=1, values={16: 1.0}), write_run("c", "rope")]
    text = markdown(build(runs))
    row = next(row for row in cells(text, "nonoverlapping") if row[0] == "alibi")
    assert row[2].endswith("¹") and "\n¹ seed 1: not evaluated  " in text


def test_a_small_difference_is_not_rounded_to_zero(write_run):
    runs = [write_run("a", values={16: 1.0}), write_run("b", "rope", values={16: 1.00001})]
    row = cells(markdown(build(runs)), "nonoverlapping: difference")[2]
    assert row[1].startswith("+1e-05 (+1e-05 to +1e-05)")


def test_a_forced_comparison_is_marked(write_run):
    runs = [write_run("a"), write_run("b", "rope", recipe={"optimizer.lr": 0.5})]
    report = build(runs, force=True)
    key = "recipe optimizer.lr: 0.001 in runs/a; 0.5 in runs/b"
    for text in (markdown(report), console(report)):
        assert "NOT COMPARABLE" in text and key in text
    assert {row["comparable"] for row in rows_of(report)} == {f"no: {key}"}
    good = build([write_run("c"), write_run("d", "rope")])
    assert "NOT COMPARABLE" not in markdown(good) + console(good)
    assert {row["comparable"] for row in rows_of(good)} == {"yes"}


def test_of_many_lengths_a_table_shows_some_the_longest_and_the_trained_among_them(tmp_path):
    def shown(lengths, trained):
        rows = [text_row(length) | {"train_length": trained} for length in lengths]
        header = tables(run_report(tmp_path, measurements_of(rows)))[0].header[1:]
        return tuple(int(name.removesuffix(" (trained)")) for name in header)

    bins = tuple(round(16 * 2 ** (i / 2)) for i in range(19))
    some = shown(bins, 256)
    assert len(some) <= MOST + 1 and some[-1] == bins[-1] and 256 in some
    assert set(some) <= set(bins) and list(some) == sorted(some)
    assert 23 in shown(bins, 23)
    assert shown(bins[:MOST], 999) == bins[:MOST]


def test_a_run_called_like_a_tag_is_text(write_run):
    run = write_run("a", speeds=()).rename("runs/<script>*x*")
    text = markdown(build([run, write_run("b", "rope")]))
    assert "<script>" not in text and "runs/&lt;script&gt;\\*x\\*: no train" in text


def test_every_curve_is_reported_beside_its_own_trained_length(write_run):
    runs = [write_run("a"), write_run("b", "rope", recipe={"data.sequence_length": 32})]
    report = build(runs, force=True)
    header, *rows = cells(markdown(report), "nonoverlapping")
    assert header == ["encoding", "16", "32"]
    assert {row[0] for row in rows} == {"alibi, trained at 16", "rope, trained at 32"}
    lengths = {(row["encoding"], row["train_length"]) for row in rows_of(report)}
    assert lengths == {("alibi", "16"), ("rope", "32")}
