"""Rank intervals: by paired differences, and by a bootstrap over the seeds of tasks."""

import itertools

import numpy as np
import pandas as pd
import pytest
from cells import column
from scipy.stats import trim_mean

from zoo.comparison.paired import Basis, Estimate, Sample
from zoo.comparison.ranking import (
    STEPS,
    bootstrap,
    draws_of,
    interquartile_mean,
    of_samples,
    of_scores,
    seed_scores,
)
from zoo.errors import InputError
from zoo.reports.report import build
from zoo.reports.tables import report_page, tables


def made(**scores):
    """The scores of encodings by task: `a=[[0.1, 0.2], [0.3]]` has two seeds in the first and one in the
    second."""
    rows = [
        (task, name, seed, score)
        for name, every in scores.items()
        for task, own in enumerate(every)
        for seed, score in enumerate(own)
    ]
    return pd.DataFrame(rows, columns=["task", "encoding", "seed", "score"])


def test_a_rank_counts_the_encodings_that_are_surely_better():
    noisy, good = [[0.1, 0.9, 0.5, 0.4]] * 3, [[0.95, 0.96, 0.97, 0.94]] * 3
    ranking = of_scores(made(good=good, even=[[0.5] * 4] * 3, noisy=noisy, zero=[[0.0] * 4] * 3))
    assert {name: ranking.rank(name) for name in ranking.values} == {
        "good": "1", "even": "2–3", "noisy": "2–3", "zero": "4",
    }  # fmt: skip
    assert ranking.groups() == [["good"], ["even", "noisy"], ["zero"]]


def test_few_seeds_have_an_order_and_no_ranks():
    ranking = of_scores(made(a=[[0.9] * 4, [0.8] * 2], b=[[0.1] * 4] * 2))
    assert [(name, one.value) for name, one in ranking.values.items()] == [
        ("a", pytest.approx(0.85)), ("b", pytest.approx(0.1)),
    ]  # fmt: skip
    assert ranking.rank("a") == "" and ranking.groups() == [["a", "b"]]


def test_a_new_entry_moves_no_interval_and_a_missing_task_leaves_no_rank():
    rng = np.random.default_rng(1)
    scores = {name: rng.random((3, 5)).tolist() for name in "abc"}
    before, after = of_scores(made(**scores)), of_scores(made(**scores, d=rng.random((3, 5)).tolist()))
    assert {name: after.values[name] for name in "abc"} == before.values
    assert of_scores(made(**scores, d=[[1.0]])).values == before.values


def test_a_score_is_the_mean_above_the_floor_of_the_seeds_that_are_there():
    """A length that cannot be read scores 0, and a value below the floor too."""
    rows = [("a", 0, 8, 1.0), ("a", 0, 16, 0.75), ("a", 1, 16, 0.2), ("b", 0, 16, 0.5), ("b", 0, 32, np.nan)]
    table = pd.DataFrame(rows, columns=["encoding", "seed", "length", "value"])
    found = seed_scores(table, {16: 0.5, 32: 0.0}).set_index(["encoding", "seed"])["score"]
    assert found.to_dict() == {("a", 0): 0.25, ("a", 1): 0.0, ("b", 0): 0.0}


def test_a_floor_ranks_a_comparison_as_the_leaderboard_does(write_run, row_of):
    """Of lengths beyond the trained one alone; a score is the interquartile mean over the seeds."""
    right = {"alibi": (0.6, 0.8, 1.0), "rope": (0.4, 0.5, 0.6)}

    def rows(last):
        return lambda recipe: [
            row_of(recipe, length, 1.0, "accuracy", accuracy=value, examples=4, units={"scores": [value] * 4})
            for length, value in ((16, 1.0), (32, 0.75), (64, last))
        ]

    runs = [
        write_run(f"{name}{seed}", name, seed, {}, rows=rows(last))
        for name, own in right.items()
        for seed, last in enumerate(own)
    ]
    (table,) = [one for one in tables(build(runs, floor=0.5)) if "above the floor 0.5" in one.caption]
    scores = {name: [(0.5 + max(0.0, 2 * (last - 0.5))) / 2 for last in own] for name, own in right.items()}
    known = of_scores(made(**{name: [own] for name, own in scores.items()}))
    assert table.cells["score"].to_dict() == {name: one.text() for name, one in known.values.items()}
    assert table.cells["rank"].to_dict() == {"alibi": "1", "rope": "2"}
    assert not any("above the floor" in one.caption for one in tables(build(runs)))
    with pytest.raises(InputError, match="of an accuracy that was measured"):
        build([write_run("text")], floor=0.5)


def test_means_are_ranked_by_their_paired_differences():
    """Documents of very different difficulty: what cannot be read comes last, behind all others."""
    rng = np.random.default_rng(3)
    sizes, hard = rng.uniform(5, 50, 30), rng.uniform(1, 5, 30)
    noise = {"a": 0.0, "b": 0.001, "c": 0.5}
    samples = {"none": None}
    for name, shift in noise.items():
        amounts = (hard + shift + rng.normal(0, 0.01, 30)) * sizes
        samples[name] = Sample(
            "loss_nats", {0: amounts.sum() / sizes.sum()}, amounts=amounts[None], sizes=sizes
        )
    found = of_samples(samples, Basis(seeds=False, units=True))
    assert [found.rank(name) for name in ("a", "b", "c", "none")] == ["1–2", "1–2", "3", "4"]
    first = next(iter(found.values))
    assert found.behind[first] == Estimate(0, 0, 0) and found.behind["c"].sign == 1


def test_the_page_of_a_comparison_has_rank_intervals_and_changes(write_run):
    losses = {"alibi": (1.0, 1.1, 1.2), "rope": (1.0, 1.5, 1.9), "learned": (1.0, "ends", "ends")}
    runs = [
        write_run(name, name, values=dict(zip((16, 32, 64), own, strict=True)))
        for name, own in losses.items()
    ]
    report = build(runs)
    (panel,) = report.panels
    assert {name: column(panel, name, "rank_from")[0] for name in losses} == {
        "alibi": 1,
        "rope": 2,
        "learned": 3,
    }
    assert column(panel, "rope", "beyond") == pytest.approx([1.7] * 3)
    assert column(panel, "rope", "beyond_behind") == pytest.approx([0.55] * 3)
    assert column(panel, "rope", "change") == pytest.approx([0.0, 0.5, 0.9])
    page = report_page(report)
    assert page.count("<figure><img ") == 1
    for text in ("beyond the trained length", "mean beyond 1x", "+0.550 (", "+0.900 ±"):
        assert text in page


def test_the_interquartile_mean_is_scipys_trimmed_mean():
    rng = np.random.default_rng(0)
    values = rng.random((5, 12))
    expected = trim_mean(values, 0.25, axis=1)
    assert interquartile_mean(values, np.ones(12)) == pytest.approx(expected)
    weights = rng.integers(1, 4, 10)
    weights[0] += -weights.sum() % 4
    repeated = np.repeat(values[:, :10], weights, axis=1)
    assert interquartile_mean(values[:, :10], weights) == pytest.approx(trim_mean(repeated, 0.25, axis=1))


def test_draws_of_a_mean_have_the_variance_of_a_mean():
    for scores in (np.array([0.2, 0.9, 0.4]), np.random.default_rng(0).random(10)):
        sets, chances = draws_of(len(scores))
        drawn = scores[sets].mean(axis=1)
        variance = chances @ (drawn - scores.mean()) ** 2
        assert chances.sum() == pytest.approx(1) and chances @ drawn == pytest.approx(scores.mean())
        assert variance == pytest.approx(scores.var(ddof=1) / len(scores))


def test_the_bootstrap_of_three_seeds_has_all_outcomes():
    """Against the draws of each seed one after another, and their pairs in two encodings."""
    rng = np.random.default_rng(4)
    scores = {name: rng.random((2, 3)) for name in "ab"}
    drawn = {}
    for name, (first, second) in scores.items():
        picks = list(itertools.product(range(3), repeat=4))
        drawn[name] = [trim_mean([*first[[*pick[:2]]], *second[[*pick[2:]]]], 0.25) for pick in picks]
    for name, own in scores.items():
        chances = bootstrap([*own])
        values = np.arange(STEPS + 1) / STEPS
        assert chances @ values == pytest.approx(np.mean(drawn[name]), abs=1e-5)
        assert chances @ values**2 == pytest.approx(np.mean(np.square(drawn[name])), abs=1e-5)
    better = np.mean([one > other for one, other in itertools.product(drawn["a"], drawn["b"])])
    first, second = (bootstrap([*own]) for own in scores.values())
    assert first @ (second.cumsum() - second) == pytest.approx(better, abs=1e-3)


def test_a_bootstrap_of_many_outcomes_is_drawn():
    rng = np.random.default_rng(5)
    groups = [*rng.random((6, 5))]
    chances, values = bootstrap(groups), np.arange(STEPS + 1) / STEPS
    drawn = [interquartile_mean(np.concatenate([one[rng.integers(0, 5, 4)] for one in groups]), np.ones(24))
             for _ in range(2000)]  # fmt: skip
    assert chances.sum() == pytest.approx(1)
    assert chances @ values == pytest.approx(np.mean(drawn), abs=0.01)
