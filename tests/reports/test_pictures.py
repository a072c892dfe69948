"""What is drawn of a comparison is what its tables have."""

import re

import numpy as np
import pytest

from zoo.reports.build import assemble
from zoo.reports.write import write_comparison


def seeds(write_run, row_of):
    rng = np.random.default_rng(0)
    return [
        write_run(
            f"{encoding}_{seed}", encoding, seed, dict(zip((16, 32), rng.uniform(1, 3, 2), strict=True))
        )
        for encoding in ("alibi", "rope")
        for seed in (0, 1, 2)
    ]


def failed_and_missing(write_run, row_of):
    runs = [
        write_run(f"s{s}", seed=s, values={16: 1.0, 32: value}) for s, value in enumerate([1.0, None, 3.0])
    ]
    return [
        *runs,
        write_run("m", "none", values={16: 1.0}),
        write_run("l", "learned", values={16: 2.0, 32: "ends"}),
    ]


def forced(write_run, row_of):
    def rows(recipe):
        return [row_of(recipe, 64, 1.0 + recipe["seed"], targets=f"{recipe['seed']:012}")]

    return [write_run(f"s{seed}", seed=seed, rows=rows, recipe={"optimizer.lr": lr}) for seed, lr in (
        (0, 0.5), (1, 0.5), (2, 0.25)
    )]  # fmt: skip


def of_two_lengths_of_training(write_run, row_of):
    return [write_run("a"), write_run("b", "rope", recipe={"data.sequence_length": 32})]


def changed(write_run, row_of):
    def rows(recipe):
        return [
            row_of(recipe, n, 1.2, encoding="yarn", changed={"model.encoding.scaling": "yarn"})
            for n in (16, 32)
        ]

    def task(recipe):
        return [row_of(recipe, n, None, "accuracy", accuracy=0.5, targets=f"{n:012}") for n in (16, 32)]

    return [
        write_run("a", "rope", rows=rows),
        write_run("b", rows=task),
        write_run("c", "rope", 1, rows=task),
    ]


@pytest.mark.parametrize("make", [seeds, failed_and_missing, forced, of_two_lengths_of_training, changed])
def test_names_and_means_that_are_drawn_are_those_of_the_tables(write_run, row_of, make):
    comparison, drawn = assemble(make(write_run, row_of), force=True)
    assert len(comparison.panels) == len(drawn) > 0
    for panel, picture in zip(comparison.panels, drawn, strict=True):
        assert (picture.protocol, picture.parameters, picture.measure) == (
            panel.protocol, panel.parameters, panel.measure,
        )  # fmt: skip
        assert [curve.label for curve in picture.curves] == [curve.label for curve in panel.curves]
        for curve, line in zip(panel.curves, picture.curves, strict=True):
            means = [line.mean(length, picture.measure) for length in panel.lengths]
            # As floats, none of them is NaN.
            np.testing.assert_allclose(np.array(means, float), np.array(curve.mean, float), rtol=1e-12)
            points = {(row["seed"], row["length"], row.get(picture.measure)) for row in line.rows}
            assert {(p.seed, p.length, p.value) for p in curve.points} == {
                p for p in points if p[2] is not None
            }


def test_a_mean_that_the_tables_do_not_have_is_not_drawn(write_run):
    runs = [write_run(f"s{s}", seed=s, values={16: 1.0, 32: value}) for s, value in enumerate([1.0, None])]
    _, (panel,) = assemble([*runs, write_run("r", "rope")])
    drawn = {curve.label: [curve.mean(n, panel.measure) for n in (16, 32)] for curve in panel.curves}
    assert drawn == {"alibi": [1.0, None], "rope": [1.5, 1.6]}


@pytest.mark.parametrize("label", ["a$\\frac$", "$x$ costs $", "<b>&*x*"])
def test_a_name_is_drawn_as_it_is(write_run, tmp_path, label):
    write_comparison(
        *assemble([write_run("a", card={"encoding": label}), write_run("b", "rope")]), tmp_path / "o"
    )
    svg = (tmp_path / "o" / "compare.svg").read_text()
    escaped = label.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert re.search(f">{re.escape(escaped)}<", svg)
