"""Values stand in one column, or on one line, only where the same tokens or examples were scored."""

import csv
import io
import shlex

import pytest

from zoo.reports.build import assemble
from zoo.reports.comparable import differences
from zoo.reports.compared_run import read_runs
from zoo.reports.csv_export import as_csv
from zoo.reports.diff import diff
from zoo.reports.page.plot_data import drawn
from zoo.reports.tables import tables

X, Y = "1" * 12, "2" * 12


def rows_with(row_of, digests, value=2.0, protocol="nonoverlapping", **more):
    """Rows by length, each on the targets of this digest."""
    return lambda recipe: [row_of(recipe, n, value, protocol, targets=d, **more) for n, d in digests.items()]


@pytest.fixture
def run_on(write_run, row_of):
    """A run that scored these targets by length: `run_on("a", {16: X, 64: Y})`."""

    def run_on(name, digests, encoding="alibi", seed=0, recipe=None, **more):
        rows = rows_with(row_of, digests, **more)
        return write_run(name, encoding, seed, {16: "no"}, recipe, rows=lambda made: rows(made))

    return run_on


def sliding(run_on):
    return lambda *args, **how: run_on(*args, protocol="sliding", **how)


def test_other_targets_at_one_length_are_left_out_everywhere_and_told(run_on):
    run = sliding(run_on)
    runs = [run("a", {16: X, 32: X, 64: Y}), run("b", {16: X, 32: X, 64: Y}, "rope")]
    comparison, panels = assemble(runs, protocols=["sliding"])
    (panel,), (picture,) = comparison.panels, panels
    for curve in panel.curves:
        assert curve.mean == (2.0, 2.0) and curve.lengths == (16, 32)
    assert [[cell.text for cell in row[1:]] for row in tables(comparison)[0].rows] == [["2.000"] * 2] * 2
    assert [row["mean"] for row in csv.DictReader(io.StringIO(as_csv(comparison)))] == ["2.0", "2.0"] * 2
    page = drawn(0, panel, {"alibi": 0, "rope": 1}, False)
    assert [[mark["mean"] for mark in curve["marks"]] for curve in page["curves"]] == [[2.0, 2.0]] * 2
    assert [[curve.mean(n, "bits_per_byte") for n in (16, 32, 64)] for curve in picture.curves] == [
        [2.0, 2.0, None]
    ] * 2
    (told,) = tuple(map(str, comparison.remarks))
    assert (
        "sliding: at 64, which are left out, other targets were scored than at 16, 32 in runs/a, runs/b"
        in told
    )
    assert shlex.split(told.split("again with: ")[1])[3:] == [
        "evaluate", "runs/a", "runs/b", "--protocol", "sliding", "--lengths", "16,32,64",
    ]  # fmt: skip
    assert told in diff(*runs)


def test_what_is_kept_is_the_same_for_all_encodings(run_on):
    run = sliding(run_on)
    runs = [run("a", {16: X, 32: Y, 64: Y}), run("b", {16: X, 32: Y}, "rope")]
    curves = assemble(runs, protocols=["sliding"])[0].panels[0].curves
    assert {curve.label: (curve.lengths, curve.mean) for curve in curves} == {
        "alibi": ((32, 64), (2.0, 2.0)),
        "rope": ((32, 64), (2.0, None)),
    }
    alone = assemble(runs, protocols=["sliding"], lengths=[16])[0]
    assert [curve.mean for curve in alone.panels[0].curves] == [(2.0,)] * 2 and not alone.remarks


def test_the_examples_of_a_task_are_others_at_every_length(write_run, row_of):
    rows = rows_with(row_of, {16: X, 32: Y}, protocol="accuracy", accuracy=0.5)
    runs = [write_run(name, e, values={16: "no"}, rows=rows) for name, e in (("a", "alibi"), ("b", "rope"))]
    comparison, _ = assemble(runs, protocols=["accuracy"])
    assert [curve.mean for curve in comparison.panels[0].curves] == [(0.5, 0.5)] * 2
    assert tuple(map(str, comparison.remarks)) == ()


def test_seeds_on_other_targets_are_forced_into_curves_of_their_own(run_on):
    run = sliding(run_on)
    runs = [
        run("a", {16: X, 32: X}, seed=0, value=1.0),
        run("b", {16: X}, seed=1, value=2.0),
        run("c", {16: Y, 32: Y}, seed=2, value=4.0),
    ]
    comparison, panels = assemble(runs, protocols=["sliding"], force=True)
    found = {curve.label: (curve.runs, curve.mean) for curve in comparison.panels[0].curves}
    assert found == {
        f"alibi targets={X}": (("runs/a", "runs/b"), (1.5, 1.0)),
        f"alibi targets={Y}": (("runs/c",), (4.0, 4.0)),
    }
    assert [curve.label for curve in panels[0].curves] == [*found]


def test_recipes_that_choose_other_targets_are_told_and_the_command_mends_it(run_on):
    runs = read_runs([
        run_on("a", {32: X, 64: X}, recipe={"evaluate.max_tokens": 9000}),
        run_on("b", {32: Y}, "rope", recipe={"evaluate.max_tokens": 10000}),
    ])  # fmt: skip
    (said,) = differences(runs)
    assert "the recipes differ in evaluate.max_tokens" in said
    assert said.endswith(
        "python -m zoo evaluate runs/a runs/b --protocol nonoverlapping --lengths 32,64 "
        "--set evaluate.max_tokens=10000"
    )
