"""The picture: what is joined, what is cut, and that the same rows are the same bytes."""

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import matplotlib
import pytest
from rows import task_row, text_row

from zoo.evaluation import plot
from zoo.evaluation.curves import panels
from zoo.evaluation.plot import plot_lengths


def drawn(rows, **how):
    """The figure that rows come to."""
    return plot._figure([panel for panel in panels(rows) if panel.measure], how.get("title"))


def lines(axes):
    """The lines that stand for encodings: those with more than one place and a marker."""
    return [
        line for line in axes.get_lines() if line.get_linestyle() != "None" and line.get_marker() != "None"
    ]


def texts(file):
    """What an SVG says as text that can be searched."""
    return [part.text for part in ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")]


def test_a_line_for_each_encoding_through_the_means_of_its_seeds():
    rows = [
        text_row(n, v + s / 4, seed=s, encoding=e)
        for e in ("alibi", "rope") for n, v in ((64, 1.0), (128, 1.25)) for s in (0, 1, 2)
    ]  # fmt: skip
    (axes,) = drawn(rows).axes
    assert [[*map(list, line.get_data())] for line in lines(axes)] == [[[64, 128], [1.25, 1.5]]] * 2
    points = [line for line in axes.get_lines() if line.get_linestyle() == "None"]
    assert [len(line.get_xdata()) for line in points] == [6, 6]
    assert not axes.collections  # no interval where the seeds show the spread


def test_the_interval_of_a_single_seed_is_shaded():
    (axes,) = drawn([text_row(64, 1.5), text_row(128, 1.25)]).axes
    (shade,) = axes.collections
    corners = {(round(x), round(y, 6)) for x, y in shade.get_paths()[0].vertices}
    assert corners == {(64, 1.4), (64, 1.6), (128, 1.15), (128, 1.35)}
    bottom, top = axes.get_ylim()
    assert bottom < 1.15 and top > 1.6


def test_rows_on_other_targets_are_not_joined():
    rows = [text_row(64), text_row(128), text_row(256, targets="ffffff", tokens=9)]
    assert [len(line.get_xdata()) for line in lines(drawn(rows).axes[0])] == [2, 1]


def test_a_panel_for_each_protocol():
    rows = [
        text_row(n, protocol=p) for p in ("nonoverlapping", "sliding", "fixed_targets") for n in (64, 128)
    ]
    figure = drawn([*rows, task_row(64), task_row(128)], title="four of them")
    assert [axes.get_title() for axes in figure.axes] == [
        "nonoverlapping",
        "sliding",
        "fixed_targets",
        "accuracy",
    ]
    assert figure.axes[3].get_ylim() == (-0.03, 1.03)
    assert figure._suptitle.get_text() == "four of them: alibi"


def test_the_trained_length_is_marked():
    (axes,) = drawn([text_row(32), text_row(64), text_row(128)]).axes
    marks = [line.get_xdata()[0] for line in axes.get_lines() if line.get_marker() == "None"]
    assert marks == [64] and "trained" in [text.get_text() for text in axes.texts]


def test_of_several_trained_lengths_each_is_named():
    (axes,) = drawn([text_row(64), text_row(1024), text_row(256, encoding="t5", train_length=256)]).axes
    named = [text.get_text() for text in axes.texts if text.get_text().startswith("trained")]
    assert sorted(named) == ["trained 256", "trained 64"]


def test_what_fails_leaves_at_the_top_and_is_told(tmp_path):
    rows = [text_row(n, 1.5) for n in (64, 128, 256)]
    rows += [text_row(n, v, encoding="rope") for n, v in ((64, 1.5), (128, 12.5), (256, None))]
    plot_lengths(rows, tmp_path / "plot.svg")
    assert "▲ above the picture, up to 12.5 or not finite" in texts(tmp_path / "plot.svg")
    (axes,) = drawn(rows).axes
    assert axes.get_ylim()[1] < 12
    assert [arrow.get_xdata()[0] for arrow in lines_at_top(axes)] == [128, 256]


def lines_at_top(axes):
    top = axes.get_ylim()[1]
    return [line for line in axes.get_lines() if len(line.get_xdata()) == 1 and line.get_ydata()[0] == top]


def test_nothing_is_said_to_be_cut_that_is_not(tmp_path):
    plot_lengths([text_row(64, 1.5), text_row(128, 2.0)], tmp_path / "plot.svg")
    assert not any("above" in text for text in texts(tmp_path / "plot.svg"))


def test_where_an_encoding_ends_is_told():
    rows = [text_row(64), text_row(128), text_row(64, encoding="learned")]
    rows.append(text_row(128, encoding="learned", note="the encoding ends at 64 tokens"))
    (legend,) = drawn(rows).legends
    assert [text.get_text() for text in legend.get_texts()] == ["alibi", "learned (up to 64)"]


def test_many_encodings_are_told_apart():
    rows = [text_row(n, 1 + i / 50, encoding=f"e{i:02}") for i in range(20) for n in (64, 128)]
    looks = {
        (line.get_color(), line.get_marker(), str(line.get_linestyle()))
        for line in lines(drawn(rows).axes[0])
    }
    assert len(looks) == 20
    # Neighbours in the order of their names differ in color, too.
    colors = [line.get_color() for line in lines(drawn(rows).axes[0])]
    assert all(one != other for one, other in pairwise(colors))


def test_one_encoding_looks_the_same_in_every_panel():
    rows = [text_row(n, encoding=e, protocol="sliding") for e in ("alibi", "rope") for n in (64, 128)]
    rows += [text_row(n, encoding="rope") for n in (64, 128)]
    first, second = (lines(axes) for axes in drawn(rows).axes)
    assert first[1].get_color() == second[0].get_color() != first[0].get_color()


@pytest.mark.parametrize("lengths", [
    [64], [100, 150, 200, 333], [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768],
    [16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512, 724, 1024, 1448, 2048],
])  # fmt: skip
def test_lengths_at_the_axis_are_few_and_measured(lengths):
    (axes,) = drawn([text_row(n) for n in lengths]).axes
    ticks = axes.get_xticks()
    assert 1 <= len(ticks) <= 9 and set(ticks) <= set(lengths)
    assert (64 in ticks) == (64 in lengths)
    steps = [math.log2(b / a) for a, b in pairwise(ticks)]
    assert not steps or min(steps) >= math.log2(lengths[-1] / lengths[0]) / 12


def test_the_same_rows_are_the_same_bytes(tmp_path):
    rows = [text_row(64), text_row(128), task_row(64, 0.25, encoding="t5")]
    for name in ("a", "b"):
        plot_lengths(rows, tmp_path / f"{name}.png", tmp_path / f"{name}.svg", title="twice")
    for ending in ("png", "svg"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    svg = (tmp_path / "a.svg").read_text()
    assert not re.search(r"<dc:date>|20\d\d-\d\d-\d\d", svg) and "alibi" in texts(tmp_path / "a.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg", "b.png", "b.svg"]


@pytest.mark.parametrize("rows", [[], [text_row(note="too long")], [text_row(value=None)]])
def test_nothing_measured_is_nothing_drawn(tmp_path, rows):
    plot_lengths(rows, tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()


@pytest.mark.parametrize("measure", ["accuracy", "bits_per_byte", "loss_nats"])
def test_failed_and_missing_points_do_not_stop_a_plot(tmp_path, measure):
    row = {"run": "r", "encoding": "rope", "train_length": 16, "seed": 0}
    rows = [
        {**row, "length": 16, measure: 0.5},
        {**row, "length": 16, measure: 0.6, "seed": 1},
        {**row, "length": 32, measure: 900.0 if measure != "accuracy" else 0.1},
        {**row, "length": 64, measure: None},
        {**row, "encoding": "learned", "length": 32, "note": "too long"},
    ]
    plot_lengths(rows, tmp_path / "deep" / "plot.png", title="a title")
    assert (tmp_path / "deep" / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_of_others_keeps_its_style(tmp_path):
    before = dict(matplotlib.rcParams)
    plot_lengths([text_row(64), text_row(128)], tmp_path / "plot.svg")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("protocols", [("nonoverlapping",), ("nonoverlapping", "sliding")])
def test_forty_encodings_have_room_in_the_legend(protocols):
    rows = [
        text_row(n, 1 + i / 50, encoding=f"rope base={100 + i}", protocol=protocol)
        for i in range(40) for n in (64, 128) for protocol in protocols
    ]  # fmt: skip
    with matplotlib.rc_context(plot.STYLE):
        figure = drawn(rows, title="forty")
        figure.draw_without_rendering()
    box, paper = figure.legends[0].get_window_extent(), figure.bbox
    assert len(figure.legends[0].get_texts()) == 40
    assert paper.y0 <= box.y0 < box.y1 <= paper.y1 and paper.x0 <= box.x0 < box.x1 <= paper.x1
    for axes in figure.axes:
        assert axes.get_window_extent().height > 100 and axes.get_window_extent().width > 150


def test_a_dollar_in_a_name_is_a_dollar(tmp_path):
    plot_lengths([text_row(64, encoding="a$\\frac$"), text_row(64, encoding="b")], tmp_path / "plot.svg")
    assert "a$\\frac$" in texts(tmp_path / "plot.svg")
