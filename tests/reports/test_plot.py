"""The plot: its lines, points above the limit, and the same bytes for the same rows."""

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import matplotlib
import pytest
from measured import measurements_of
from rows import task_row, text_row

from zoo.figures.style import styles
from zoo.reports import plot
from zoo.reports.compared_run import Run
from zoo.reports.panels import panels, ranked
from zoo.reports.series import Series


def panels_of(rows):
    """The panels of rows of several runs: those of one encoding are its seeds."""
    series = []
    for encoding in sorted({row["encoding"] for row in rows}):
        own = [row for row in rows if row["encoding"] == encoding]
        runs = [
            Run(f"r{seed}", {"seed": seed}, {}, tuple(measurements_of([r for r in own if r["seed"] == seed])))
            for seed in sorted({row["seed"] for row in own})
        ]
        series.append(Series(encoding, tuple(runs), {}))
    made = panels(series)
    return ranked(made, series) if made else ()


def drawn(rows, **how):
    """The figure that rows come to."""
    return plot.draw(panels_of(rows), how.get("title"))


def plot_rows(rows, *files, title=None):
    pictures = plot.plot(panels_of(rows), title)
    for file in files:
        if file.suffix in pictures:
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(pictures[file.suffix])


def lines(axes):
    """The lines that stand for encodings: those with a marker and a line."""
    return [
        line for line in axes.get_lines() if line.get_linestyle() != "None" and line.get_marker() != "None"
    ]


def edges(axes):
    """The ends of intervals, faint lines along the lengths."""
    thin = [line for line in axes.get_lines() if line.get_marker() == "None" and line.get_alpha()]
    return [[*map(float, line.get_ydata())] for line in thin]


def marked_lengths(axes):
    """Where a dotted line goes up at a trained length."""
    upright = [line for line in axes.get_lines() if line.get_marker() == "None" and not line.get_alpha()]
    return [line.get_xdata()[0] for line in upright if line.get_xdata()[0] == line.get_xdata()[1]]


def texts(file):
    """What an SVG says as text that can be searched."""
    return [part.text for part in ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")]


def test_a_line_for_each_encoding_through_the_means_of_its_seeds():
    rows = [
        text_row(n, v + s / 4, seed=s, encoding=e)
        for e in ("alibi", "rope") for n, v in ((64, 1.0), (128, 1.25)) for s in (0, 1, 2)
    ]  # fmt: skip
    axes, _ = drawn(rows).axes
    assert [[*map(list, line.get_data())] for line in lines(axes)] == [[[64, 128], [1.25, 1.5]]] * 2
    points = [line for line in axes.get_lines() if line.get_linestyle() == "None"]
    assert [len(line.get_xdata()) for line in points] == [6, 6]


def test_an_interval_is_two_faint_edges_with_little_between_them():
    (axes,) = drawn([text_row(64, 1.5), text_row(128, 1.25)]).axes
    assert edges(axes) == [pytest.approx([1.4, 1.15]), pytest.approx([1.6, 1.35])]
    (between,) = axes.collections
    assert between.get_alpha() <= 0.05
    bottom, top = axes.get_ylim()
    assert bottom < 1.15 and top > 1.6


def test_differences_to_the_reference_stand_under_the_values():
    rows = [text_row(n, v, encoding=e) for e, v in (("alibi", 1.5), ("rope", 1.75)) for n in (64, 128)]
    values, differences = drawn(rows).axes
    assert [list(line.get_ydata()) for line in lines(values)] == [[1.5, 1.5], [1.75, 1.75]]
    (line,) = lines(differences)
    assert list(line.get_ydata()) == [0.25, 0.25] and line.get_color() == lines(values)[1].get_color()
    assert differences.get_xlabel() == "length (tokens)" and values.get_xlabel() == ""


def test_rows_on_other_targets_are_in_panels_of_their_own():
    rows = [text_row(64), text_row(128), text_row(256, targets="ffffff", tokens=9)]
    assert [len(lines(axes)[0].get_xdata()) for axes in drawn(rows).axes] == [2, 1]


def test_a_panel_for_each_protocol():
    rows = [
        text_row(n, protocol=p) for p in ("nonoverlapping", "sliding", "fixed_targets") for n in (64, 128)
    ]
    figure = drawn([*rows, task_row(64), task_row(128)], title="four of them")
    titles = [axes.get_title() for axes in figure.axes]
    assert sorted(titles) == ["accuracy", "fixed_targets", "nonoverlapping", "sliding"]
    assert figure.axes[titles.index("accuracy")].get_ylim() == (-0.03, 1.03)
    assert figure._suptitle.get_text() == "four of them: alibi"


def test_the_trained_length_is_marked():
    (axes,) = drawn([text_row(32), text_row(64), text_row(128)]).axes
    assert marked_lengths(axes) == [64] and "trained" in [text.get_text() for text in axes.texts]


def test_of_several_trained_lengths_each_is_named():
    rows = [text_row(64), text_row(1024), text_row(256, encoding="t5", train_length=256)]
    named = [text.get_text() for text in drawn(rows).axes[0].texts if text.get_text().startswith("trained")]
    assert sorted(named) == ["trained 256", "trained 64"]


def test_points_above_the_plot_are_marked_and_noted(tmp_path):
    rows = [text_row(n, 1.5) for n in (64, 128, 256)]
    rows += [text_row(n, v, encoding="rope") for n, v in ((64, 1.5), (128, 12.5), (256, None))]
    plot_rows(rows, tmp_path / "plot.svg")
    assert "▲ above the picture, up to 12.5 or not finite" in texts(tmp_path / "plot.svg")
    axes = drawn(rows).axes[0]
    top = axes.get_ylim()[1]
    arrows = [line for line in axes.get_lines() if len(line.get_xdata()) == 1 and line.get_ydata()[0] == top]
    assert top < 12 and [arrow.get_xdata()[0] for arrow in arrows] == [128, 256]


def test_a_plot_without_cut_points_has_no_note(tmp_path):
    plot_rows([text_row(64, 1.5), text_row(128, 2.0)], tmp_path / "plot.svg")
    assert not any("above" in text for text in texts(tmp_path / "plot.svg"))


def test_where_an_encoding_ends_is_in_the_legend():
    rows = [text_row(64), text_row(128), text_row(64, encoding="learned")]
    rows.append(text_row(128, encoding="learned", note="the encoding ends at 64 tokens"))
    (legend,) = drawn(rows).legends
    assert [text.get_text() for text in legend.get_texts()] == ["alibi", "learned (up to 64)"]


def test_twenty_encodings_have_distinct_looks():
    rows = [text_row(n, 1 + i / 50, encoding=f"e{i:02}") for i in range(20) for n in (64, 128)]
    axes = drawn(rows).axes[0]
    looks = {(line.get_color(), line.get_marker(), repr(line._unscaled_dash_pattern)) for line in lines(axes)}
    assert len(looks) == 20
    expected = {(one.color, one.marker) for one in styles(f"e{i:02}" for i in range(20)).values()}
    assert {look[:2] for look in looks} == expected


def test_lengths_at_the_axis_are_few_and_measured():
    for lengths in (
        [64], [100, 150, 200, 333], [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768],
        [16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512, 724, 1024, 1448, 2048],
    ):  # fmt: skip
        (axes,) = drawn([text_row(n) for n in lengths]).axes
        ticks = axes.get_xticks()
        assert 1 <= len(ticks) <= 9 and set(ticks) <= set(lengths)
        assert (64 in ticks) == (64 in lengths)
        steps = [math.log2(b / a) for a, b in pairwise(ticks)]
        assert not steps or min(steps) >= math.log2(lengths[-1] / lengths[0]) / 12


def test_the_same_rows_are_the_same_bytes(tmp_path):
    rows = [text_row(64), text_row(128), task_row(64, 0.25, encoding="t5")]
    for name in ("a", "b"):
        plot_rows(rows, tmp_path / f"{name}.png", tmp_path / f"{name}.svg", title="twice")
    for ending in ("png", "svg"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    svg = (tmp_path / "a.svg").read_text()
    assert not re.search(r"<dc:date>|20\d\d-\d\d-\d\d", svg) and "alibi" in texts(tmp_path / "a.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg", "b.png", "b.svg"]


def test_a_plot_of_failed_and_missing_points(tmp_path):
    for rows in ([], [text_row(note="too long")], [text_row(value=None)]):
        plot_rows(rows, tmp_path / "plot.png")
        assert not (tmp_path / "plot.png").exists()
    rows = [text_row(16, 0.5), text_row(16, 0.6, seed=1), text_row(32, 900.0), text_row(64, None)]
    plot_rows(
        [*rows, text_row(32, encoding="learned", note="too long")], tmp_path / "plot.png", title="a title"
    )
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_of_others_keeps_its_style(tmp_path):
    before = dict(matplotlib.rcParams)
    plot_rows([text_row(64), text_row(128)], tmp_path / "plot.svg")
    assert dict(matplotlib.rcParams) == before


def test_forty_encodings_have_room_in_the_legend():
    protocols = ("nonoverlapping", "sliding")
    rows = [
        text_row(n, 1 + i / 50, encoding=f"rope base={100 + i}", protocol=protocol)
        for i in range(40) for n in (64, 128) for protocol in protocols
    ]  # fmt: skip
    with matplotlib.rc_context(plot.RC):
        figure = drawn(rows, title="forty")
        figure.draw_without_rendering()
    box, paper = figure.legends[0].get_window_extent(), figure.bbox
    assert len(figure.legends[0].get_texts()) == 40
    assert paper.y0 <= box.y0 < box.y1 <= paper.y1 and paper.x0 <= box.x0 < box.x1 <= paper.x1
    for axes in figure.axes:
        assert axes.get_window_extent().height > 50 and axes.get_window_extent().width > 150


def test_a_dollar_in_a_name_is_a_dollar(tmp_path):
    plot_rows([text_row(64, encoding="a$\\frac$"), text_row(64, encoding="b")], tmp_path / "plot.svg")
    assert "a$\\frac$" in texts(tmp_path / "plot.svg")
