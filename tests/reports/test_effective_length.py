"""The effective length against the rule, length by length."""

import pytest

from zoo.comparison.effective_length import effective_length
from zoo.reports.csv_export import as_csv
from zoo.reports.report import build
from zoo.reports.text import markdown

ACCURACY = ("accuracy", "accuracy")


def by_length(column, **scores):
    return {int(name[1:]): {column: score} for name, score in scores.items()}


@pytest.mark.parametrize("scores, expected", [
    (by_length("mean", n32=0.2, n64=1.0, n128=0.85, n256=0.84, n512=0.9), (128, False)),
    (by_length("mean", n64=1.0, n128=0.9, n256=0.9), (256, True)),
    (by_length("mean", n64=0.8, n128=0.69, n256=0.67), (128, False)),
    (by_length("mean", n64=1.0, n128=None, n256=1.0), (64, False)),
    (by_length("mean", n64=0.49, n128=0.49), (None, False)),
    (by_length("mean", n128=1.0, n256=1.0), (None, False)),
])  # fmt: skip
def test_an_accuracy_keeps_a_share_of_that_at_the_trained_length(scores, expected):
    assert effective_length(*ACCURACY, 64, scores) == expected


def test_a_loss_counts_under_fixed_targets_alone():
    scores = by_length("loss_nats", n64=3.0, n128=3.04, n256=3.06, n512=2.9)
    assert effective_length("fixed_targets", "bits_per_byte", 64, scores) == (128, False)
    assert effective_length("nonoverlapping", "bits_per_byte", 64, scores) == (None, False)


def test_the_table_and_the_csv_have_it(write_run, row_of):
    def rows(recipe, losses):
        return [row_of(recipe, n, value, "fixed_targets") for n, value in losses.items()]

    runs = [
        write_run("a", "alibi", rows=lambda recipe: rows(recipe, {16: 2.0, 32: 2.01, 64: 2.3})),
        write_run("b", "rope", rows=lambda recipe: rows(recipe, {16: 2.0, 32: 2.0, 64: 2.0})),
    ]
    report = build(runs)
    text = markdown(report)
    assert "effective length |" in text and "| ≥ 64 |" in text and "| 32 |" in text
    assert "effective_length" in as_csv(report).splitlines()[0]
