"""The curves: the drawn numbers are those of the summary, in matplotlib and in plotly."""

import pytest

from zoo.figures.curves import curves, interactive_curves, pictures
from zoo.reports.report import build


@pytest.fixture
def report(write_run):
    values = {16: 1.0, 32: 1.1, 64: 9.0}
    return build([
        write_run("a", values={16: 1.2, 32: 1.3, 64: 1.4}),
        write_run("b", "rope", values=values),
        write_run("c", "learned", values={16: 1.3, 32: "the encoding ends"}),
    ])  # fmt: skip


def of(report, label, column):
    own = report.summary[(report.summary["encoding"] == label) & report.summary[column].notna()]
    return own["length"].tolist(), own[column].tolist()


def test_lines_are_the_means_and_the_differences(report):
    values, differences = curves(report.summary, "title").axes
    handles = {line.get_label(): line for line in values.get_lines()}
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in handles.values()]
    for label in ("alibi", "rope", "learned"):
        assert of(report, label, "mean") in drawn
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in differences.get_lines()]
    assert of(report, "alibi", "difference") in drawn


def test_a_value_far_above_the_best_is_cut_off_and_written(report):
    values = curves(report.summary).axes[0]
    assert values.get_ylim()[1] < 2 and "up to 9" in " ".join(text.get_text() for text in values.texts)


def test_the_same_numbers_give_the_same_bytes(report):
    assert pictures(report.summary, "x") == pictures(report.summary, "x")


def test_the_interactive_figure_has_the_same_numbers(report):
    (panel,) = report.panels
    figure = interactive_curves(panel, panel["encoding"].unique())
    lines = {(t.name, t.yaxis): (list(t.x), list(t.y)) for t in figure.data if t.name}
    assert lines["alibi", "y"] == of(report, "alibi", "mean")
    assert lines["alibi", "y2"] == of(report, "alibi", "difference")
    assert "1.100 [" in next(t for t in figure.data if t.name == "rope").text[1]
