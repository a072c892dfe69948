"""The runs of a curve, its label, and its numbers, computed again with numpy."""

import math
from pathlib import Path

import numpy as np
import pytest
from cells import column, first, labels, notes
from scipy import stats

from zoo.comparison.formatting import panel_title
from zoo.reports.report import build
from zoo.reports.tables import panel_tables

LENGTHS = (16, 32, 64)


def panel_of(runs, **how):
    return build(runs, **how).panels[0]


def runs_of(panel):
    """The runs of each curve, by label."""
    return {label: column(panel, label, "runs")[0].split() for label in labels(panel)}


@pytest.fixture
def matrix(write_run):
    """Three encodings, three seeds, and their values [seed, length]."""
    rng = np.random.default_rng(0)
    values = {encoding: rng.uniform(1, 3, (3, 3)) for encoding in ("alibi", "rope", "none")}
    runs = [
        write_run(f"{encoding}_{seed}", encoding, seed, dict(zip(LENGTHS, row, strict=True)))
        for encoding, of_seeds in values.items()
        for seed, row in enumerate(of_seeds.tolist())
    ]
    return runs, values


def test_a_curve_is_the_mean_over_seeds_and_their_standard_deviation(matrix):
    runs, values = matrix
    panel = panel_of(runs)
    assert set(labels(panel)) == values.keys()
    for label in labels(panel):
        expected, sd = values[label].mean(0), values[label].std(0, ddof=1)
        np.testing.assert_allclose(column(panel, label), expected, rtol=1e-12)
        np.testing.assert_allclose(column(panel, label, "sd"), sd, rtol=1e-12)
        # Over three seeds and seven documents: wider than over the seeds alone.
        margin = stats.t.ppf(0.975, 2) * sd / 3**0.5
        assert (column(panel, label, "high") > expected + margin).all()
        assert (column(panel, label, "low") < np.maximum(expected - margin, 1e-9)).all()
        assert column(panel, label, "measured") == column(panel, label, "seeds") == [3, 3, 3]
        assert column(panel, label, "count") == [7, 7, 7] and not notes(panel, label)
        assert column(panel, label, "length") == [*LENGTHS]
        each = [[of_seed[seed] for seed in range(3)] for of_seed in column(panel, label, "values")]
        assert each == values[label].T.tolist()


def test_the_order_of_the_runs_changes_nothing(matrix):
    runs, _ = matrix
    forward, backward = (build(order) for order in (runs, runs[::-1]))
    mixed = build([runs[i] for i in np.random.default_rng(1).permutation(len(runs))])
    assert forward.summary.equals(backward.summary) and forward.summary.equals(mixed.summary)
    assert forward.costs.equals(backward.costs) and forward.costs.equals(mixed.costs)
    assert (
        forward.table.to_csv(index=False)
        == backward.table.to_csv(index=False)
        == mixed.table.to_csv(index=False)
    )


def test_the_best_at_the_longest_length_that_most_have_comes_first(write_run):
    runs = [
        write_run("a", "alibi", values={16: 1.0, 32: 2.0, 64: 3.0}),
        write_run("b", "rope", values={16: 3.0, 32: 2.0, 64: 1.0}),
        write_run("c", "learned", values={16: 0.5, 32: "ends", 64: "ends"}),
        write_run("d", "none", values={16: 0.5, 32: 0.5, 64: "ends"}),
    ]

    def order(*chosen, **options):
        return labels(panel_of([runs[place] for place in chosen], **options))

    assert order(0, 1) == ["rope", "alibi"]
    assert order(0, 1, 3) == ["rope", "alibi", "none"]
    # At 32 two are equal: `rope` is the better one at 64.
    assert order(0, 1, 2, 3) == ["none", "rope", "alibi", "learned"]
    # An encoding without a number at any length has no say.
    assert order(0, 1, 2, lengths=[32, 64]) == ["rope", "alibi", "learned"]


def test_every_protocol_with_its_parameters_is_a_panel_in_one_order(write_run, row_of):
    def rows(better):
        def make(recipe):
            more = [
                ("nonoverlapping", {"data": "other"}),
                ("sliding", {"stride": 0.5}),
                ("sliding", {"stride": 0.25}),
                ("fixed_targets", {"targets": 4}),
            ]
            return [
                row_of(recipe, length, 5.0 - better, protocol, parameters)
                for protocol, parameters in more
                for length in (16, 32)
            ]

        return make

    runs = [
        write_run("a", "alibi", values={16: 1.0}, rows=rows(better=0)),
        write_run("b", "rope", values={16: 2.0}, rows=rows(better=1)),
    ]
    report = build(runs)
    assert first(report, "protocol", "parameters") == [
        ("nonoverlapping", "{}"),
        ("nonoverlapping", '{"data": "other"}'),
        ("sliding", '{"stride": 0.25}'),
        ("sliding", '{"stride": 0.5}'),
        ("fixed_targets", '{"targets": 4}'),
    ]
    assert all(labels(panel) == ["alibi", "rope"] for panel in report.panels)


def test_a_length_that_could_not_be_measured_has_its_note(write_run):
    ends = write_run("a", "learned", values={16: 1.5, 32: "the encoding ends"})
    panel = panel_of([ends, write_run("b")])
    assert column(panel, "learned") == [1.5, None] and notes(panel, "learned") == {32: "the encoding ends"}
    assert column(panel, "learned", "measured") == [1, 0] and column(panel, "learned", "count") == [7, None]
    assert column(panel, "learned", "values") == [{0: 1.5}, {}]


def test_a_mean_with_a_value_that_is_not_finite_is_missing(write_run):
    runs = [
        write_run(f"s{seed}", seed=seed, values={16: 1.0, 32: value})
        for seed, value in enumerate([1.0, None, 2.0])
    ]
    panel = panel_of(runs)
    assert column(panel, "alibi") == [1.0, None] and notes(panel, "alibi") == {32: "seed 1: not finite"}
    assert column(panel, "alibi", "values")[1].keys() == {0, 2}
    assert notes(panel_of([runs[1], write_run("r", "rope")]), "alibi") == {32: "not finite"}


def test_a_mean_without_some_seeds_names_them(write_run):
    runs = [
        write_run("a", seed=0, values={16: 1.0, 32: 2.0}),
        write_run("b", seed=1, values={16: 1.0}),
        write_run("c", seed=2, values={16: 1.0, 32: 4.0}),
        write_run("d", seed=3, values={16: 1.0, 32: "out of memory"}),
    ]
    panel = panel_of(runs)
    assert column(panel, "alibi") == [1.0, 3.0] and column(panel, "alibi", "measured") == [4, 2]
    assert notes(panel, "alibi") == {32: "seed 1: not evaluated; seed 3: out of memory"}


def test_one_note_stands_for_every_bin_of_its_window(write_run, row_of):
    window = {"window": 64}

    def bins(recipe):
        return [row_of(recipe, n, 2.0, "per_position", window) for n in (16, 32, 64)]

    def note(recipe):
        return [row_of(recipe, 64, "the encoding ends at 16 tokens", "per_position", window)]

    runs = [write_run("a", "alibi", rows=bins), write_run("b", "learned", rows=note)]
    report = build(runs, protocols=["per_position"])
    (panel,) = report.panels
    assert column(panel, "learned") == [None, None, None]
    assert notes(panel, "learned") == dict.fromkeys((16, 32, 64), "the encoding ends at 16 tokens")
    assert not any("not evaluated" in remark for remark in report.caveats)


def test_encodings_of_one_name_are_called_by_all_that_differs(write_run):
    runs = [
        write_run("a", {"name": "rope"}),
        write_run("b", {"name": "rope", "partial": 0.5, "base": 500.0}),
        write_run("c", {"name": "rope", "partial": 0.5}),
        write_run("d", "alibi"),
    ]
    assert set(labels(panel_of(runs))) == {
        "alibi",
        "rope base=10000.0 partial=1.0",
        "rope base=500.0 partial=0.5",
        "rope base=10000.0 partial=0.5",
    }


def changed_rows(row_of, label="rope scaling=yarn factor=4", **changed):
    changed = changed or {"model.encoding.scaling": "yarn", "model.encoding.factor": 4.0}
    return lambda recipe: [row_of(recipe, n, 1.2, encoding=label, changed=changed) for n in (16, 32)]


def test_an_encoding_changed_after_training_is_its_own_curve(write_run, row_of):
    runs = [write_run(f"s{seed}", "rope", seed, rows=changed_rows(row_of)) for seed in (0, 1)]
    panel = panel_of([*runs, write_run("a", "alibi")])
    assert runs_of(panel) == {
        "rope scaling=yarn factor=4": ["runs/s0", "runs/s1"],
        "rope": ["runs/s0", "runs/s1"],
        "alibi": ["runs/a"],
    }
    assert column(panel, "rope scaling=yarn factor=4") == [1.2, 1.2]


def test_a_changed_encoding_of_two_trained_ones_names_its_origin(write_run, row_of):
    changed = changed_rows(row_of, "rerope", **{"model.encoding.name": "rerope"})
    runs = [
        write_run("a", {"name": "rope", "partial": 0.5}, rows=changed),
        write_run("b", {"name": "rope", "partial": 1.0}, rows=changed),
    ]
    assert set(labels(panel_of(runs))) == {
        "rope partial=0.5",
        "rope partial=1.0",
        "rerope (trained: partial=0.5)",
        "rerope (trained: partial=1.0)",
    }


def test_forced_runs_that_differ_never_share_a_curve(write_run):
    runs = [
        write_run("a", seed=0),
        write_run("b", seed=1),
        write_run("c", seed=1, recipe={"optimizer.lr": 0.5, "data.batch_size": 2}),
        write_run("d", seed=1, card={"steps": 6, "tokens_seen": 5}),
        write_run("e", "rope", recipe={"optimizer.lr": 0.5}),
    ]
    curves = runs_of(panel_of(runs, force=True))
    assert sorted(curves.values()) == [["runs/a", "runs/b"], ["runs/c"], ["runs/d"], ["runs/e"]]
    assert "rope" in curves  # alone of its name, it needs no more
    assert all(label.startswith("alibi ") for label in curves if label != "rope")


def test_a_seed_that_is_there_twice_is_forced_into_curves_of_their_own(write_run):
    runs = [write_run("a"), write_run("b"), write_run("c", seed=1)]
    assert runs_of(panel_of(runs, force=True)) == {
        "alibi (runs/a)": ["runs/a"],
        "alibi (runs/b)": ["runs/b"],
        "alibi (runs/c)": ["runs/c"],
    }


def test_costs_are_those_of_the_longest_length_that_all_can_read(write_run):
    def run(name, encoding, seed, values, positional, speeds):
        card = {"parameters.positional": positional, "parameters.total": 1000 + positional}
        return write_run(name, encoding, seed, values, card=card, speeds=speeds)

    runs = [
        run("a", "alibi", 0, {16: 1.0, 32: 1.0, 64: 1.0}, 0, (1, 100, 200)),
        run("b", "alibi", 1, {16: 1.0, 32: 1.0, 64: 1.0}, 0, (300, 300, 300)),
        run("c", "learned", 0, {16: 1.0, 32: 1.0, 64: "ends"}, 64, ()),
    ]
    costs = {row.Index: row for row in build(runs).costs.itertuples()}
    assert (costs["alibi"].added_parameters, costs["alibi"].parameters) == (0, 1000)
    assert (costs["learned"].added_parameters, costs["learned"].parameters) == (64, 1064)
    assert costs["alibi"].training_tokens_per_second == 200  # the mean of two medians
    assert math.isnan(costs["learned"].training_tokens_per_second)
    for cost in costs.values():
        assert (cost.evaluation_length, cost.evaluation_tokens_per_second, cost.peak_memory_mb) == (
            32,
            1032,
            132,
        )


def sliding(row_of, **strides):
    """Rows of `sliding`: the value of each stride."""
    kinds = ({"quarter": 0.25, "half": 0.5}[name] for name in strides)
    made = [*zip(kinds, strides.values(), strict=True)]
    return lambda recipe: [row_of(recipe, n, v, "sliding", {"stride": s}) for s, v in made for n in (16, 32)]


def test_the_measure_is_one_that_has_values(write_run, row_of):
    """A target of no bytes has no bits per byte."""

    def rows(recipe):
        return [row_of(recipe, n, None, "fixed_targets", {"targets": 1}, loss_nats=5.664) for n in (1, 8)]

    runs = [write_run("a", rows=rows), write_run("b", "rope", rows=rows)]
    panel = build(runs).panels[1]
    assert set(panel["measure"]) == {"loss_nats"} and panel["mean"].tolist() == [5.664] * 4


def test_a_panel_without_a_number_is_left_out_and_reported(write_run, row_of):
    runs = [write_run(n, e, rows=sliding(row_of, half=None)) for n, e in (("a", "alibi"), ("b", "rope"))]
    report = build(runs)
    assert first(report, "protocol") == [("nonoverlapping",)]
    assert report.caveats == ("nothing could be measured by sliding (stride 0.5) (not finite) at 16, 32",)


def test_a_title_has_the_last_part_of_the_path_of_a_text_and_the_table_the_path(write_run, row_of):
    def rows(recipe):
        return [row_of(recipe, 16, 1.5, parameters={"data": one}) for one in ("/corpora/a/books", "code")]

    report = build([write_run("a", rows=rows)])
    titles = ["nonoverlapping", "nonoverlapping (data books)", "nonoverlapping (data code)"]
    assert [*map(panel_title, report.panels)] == titles
    paths = [next(panel_tables(panel)).notes[0].partition("text: ")[2] for panel in report.panels]
    assert paths == ["", "/corpora/a/books", ""]


def test_a_page_names_its_text_and_not_that_of_an_imported_model(write_run, row_of):
    books = {"data.name": "text", "data.root": "corpora/books"}
    imported = {"imported": {"from": "org/model", "architecture": "LlamaForCausalLM"}}

    def rows(recipe):
        return [row_of(recipe, 16, 1.5, parameters={"data": "a/code"}, targets="0c" * 6)]

    trained = build([write_run("a", recipe=books, rows=rows), write_run("b", "rope", recipe=books)])
    assert trained.title == "2 encodings on text books, trained at 16 tokens"
    assert (trained.about["data"], trained.about["scored on"]) == ("text books", "differs")
    foreign = build([write_run("c", card=imported, rows=rows)])
    assert foreign.title == "1 encoding, trained at 16 tokens"
    assert (foreign.about["data"], foreign.about["scored on"]) == ("not known", "code, sample")
    assert "scored on" not in build([write_run("d")]).about
    models = build([Path("runs/c"), write_run("e", "rope", rows=rows)], models=True)
    assert models.title.startswith("2 models on code, sample:")
