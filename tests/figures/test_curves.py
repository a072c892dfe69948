"""The curves: the drawn numbers are those of the summary, in matplotlib and in plotly."""

import pytest
from figure_texts import text_faults

from zoo.figures.curves import curves, interactive_curves, pictures, plots
from zoo.figures.style import FIRST, styles
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
    assert values.get_ylim()[1] < 2 and "rope ▲ 9" in {text.get_text() for text in values.texts}


def test_the_same_numbers_give_the_same_bytes(report):
    assert pictures(report.summary, "x") == pictures(report.summary, "x")


def test_the_interactive_figure_has_the_same_numbers(report):
    (panel,) = report.panels
    figure = interactive_curves(panel, panel["encoding"].unique())
    lines = {(t.name, t.yaxis): (list(t.x), list(t.y)) for t in figure.data if t.name}
    assert lines["alibi", "y"] == of(report, "alibi", "mean")
    assert lines["alibi", "y2"] == of(report, "alibi", "difference")
    rope = next(trace for trace in figure.data if trace.name == "rope")
    assert (rope.y + rope.error_y.array).tolist() == pytest.approx(of(report, "rope", "high")[1])


def test_the_axis_follows_the_encodings_that_stay_together(write_run):
    values = {"alibi": 1.1, "rope": 1.2, "none": 1.15, "t5": 1.12, "sinusoidal": 1.6}
    made = build([write_run(one, one, values={16: 1.0, 64: end}) for one, end in values.items()])
    (panel,) = made.panels
    plot = plots(panel)[0]
    top = plot.range[1]
    assert 1.2 < top < 1.4
    # The line from 1 to 1.6 over two octaves leaves where it crosses the edge.
    assert plot.exits() == [("sinusoidal", pytest.approx(16 * 4 ** ((top - 1) / 0.6)))]
    assert ("sinusoidal", "sinusoidal ▲ 1.6", 64, 1.6) in plot.ends()


LONG = [
    {"name": "interleave", "pattern": ["rope", "alibi", "none", "rope", "alibi", "sinusoidal"]},
    ["rope", "fox"], "alibi", "rope",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("protocols", [1, 4])
@pytest.mark.parametrize("encodings", [["alibi"], [*FIRST, "path", "xpos"], LONG])
def test_every_curve_has_a_label_of_its_colour_and_no_text_is_hidden(write_run, row_of, encodings, protocols):
    def rows(end):
        more = [("sliding", {"stride": 8}), ("sliding", {"stride": 4}), ("prefix", {"context": 8})]
        return lambda recipe: [
            row_of(recipe, length, value, *protocol)
            for protocol in more[: protocols - 1]
            for length, value in ((16, 1.0), (64, end))
        ]

    ends = [1.1 + 0.0003 * index for index in range(len(encodings))]
    ends[-1] = 12345.678  # cut off
    runs = [
        write_run(f"run{index}", one, values={16: 1.0, 64: end}, rows=rows(end))
        for index, (one, end) in enumerate(zip(encodings, ends, strict=True))
    ]
    summary = build(runs).summary
    figure, looks = curves(summary, "a long title " * 12), styles(summary["encoding"])
    labelled = [axes for axes in figure.axes if len(axes.texts) > 1]
    assert len(labelled) == protocols
    for axes in labelled:
        texts = {text.get_text().split(" ▲")[0]: text.get_color() for text in axes.texts[: len(encodings)]}
        assert texts == {label: look.color for label, look in looks.items()}
    assert text_faults(figure) == []
