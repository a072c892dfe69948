"""Rankings: differences over the same documents or examples, ties, and the verdict."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from cells import apart, cell, first, labels
from known_units import TOKENS
from scipy import stats

from zoo.comparison.findings import findings, limits
from zoo.comparison.paired import basis_of, difference, make_sample
from zoo.errors import InputError
from zoo.evaluation.interval import interval_of_ratio
from zoo.evaluation.measurement import Units
from zoo.reports.report import build
from zoo.reports.tables import spread_text, verdict
from zoo.reports.text import markdown


@pytest.fixture
def run_of_documents(write_run, row_of):
    """A run of one length, from what each document gave in nats: `run_of_documents("a", "rope", nats)`."""

    def run_of_documents(name, encoding, nats, seed=0, **row):
        tokens = [*itertools.islice(itertools.cycle(TOKENS), len(nats))]
        sizes = [3 * count for count in tokens]
        loss = sum(nats) / sum(tokens)

        def rows(recipe):
            return [row_of(
                recipe, 16, loss / 3 / math.log(2), tokens=sum(tokens), documents=len(nats), loss_nats=loss,
                **row,
            ) | {"units": {
                "documents": [*range(len(nats))], "nats": [*map(float, nats)],
                "tokens": tokens, "bytes": sizes,
            }}]  # fmt: skip

        return write_run(name, encoding, seed, {64: "not here"}, rows=rows)

    return run_of_documents


@pytest.fixture
def run_of_examples(write_run, row_of):
    """A run of a task, from the score of each example."""

    def run_of_examples(name, encoding, scores, seed=0):
        def rows(recipe):
            row = row_of(
                recipe, 16, 1.0, "accuracy", accuracy=sum(scores) / len(scores), examples=len(scores)
            )
            return [row | {"units": {"scores": [*map(float, scores)]}}]

        return write_run(name, encoding, seed, {64: "not here"}, rows=rows)

    return run_of_examples


def panel_of(runs, **how):
    return build(runs, **how).panels[0]


def ranks(panel):
    """The ranks at 16, by label."""
    return {label: cell(panel, label, 16, "rank") for label in labels(panel)}


def test_three_runs_with_accuracy_zero_are_tied(run_of_examples):
    runs = [run_of_examples(n, n, [0] * 50) for n in ("alibi", "rope", "t5")]
    report = build(runs, protocols=["accuracy"])
    (panel,) = report.panels
    assert [*ranks(panel).values()] == [1, 1, 1]
    for other in ("rope", "t5"):
        one = apart(panel, other, 16)
        assert one.value == 0 and one.low == -one.high and 0.05 < one.high < 0.1
    assert (panel["low"] == 0).all() and panel["high"].between(0.05, 0.1).all()
    assert "**" not in markdown(report)
    (found,) = findings(report.summary)
    assert found.leader == "alibi" and [*found.tied_with] == ["rope", "t5"] and not found.ahead_of


def test_one_seed_and_one_document_make_no_ranking(run_of_documents):
    runs = [run_of_documents("a", "alibi", [30.0]), run_of_documents("b", "rope", [30.29])]
    report = build(runs, protocols=["nonoverlapping"])
    (panel,) = report.panels
    assert panel["mean"].max() - panel["mean"].min() == pytest.approx(0.007, abs=1e-4)
    assert ranks(panel) == {"alibi": None, "rope": None}
    (found,) = findings(report.summary)
    assert (found.leader, found.ahead_of, found.tied_with) == ("", {}, {})
    assert limits(report.summary)[:2] == ("no ranking at 16: one document was scored", "1 document")
    assert spread_text(panel) == "no interval: one document was scored"


def test_seeds_that_only_some_have_make_one_kind_of_interval(run_of_documents):
    nats = np.array(TOKENS) * 2.0
    noise = np.random.default_rng(0).normal(0, 1, (3, len(TOKENS)))
    runs = [
        run_of_documents("a0", "alibi", nats + noise[0], 0),
        run_of_documents("a1", "alibi", nats + noise[1], 1),
        run_of_documents("b0", "rope", nats + noise[2], 0),
    ]
    report = build(runs, protocols=["nonoverlapping"])
    (panel,) = report.panels
    factor, sizes = 1 / math.log(2), 3 * np.array(TOKENS)
    for label, own in (("alibi", nats + noise[:2].mean(0)), ("rope", nats + noise[2])):
        expected = interval_of_ratio(factor * own, sizes)
        assert (cell(panel, label, 16, "low"), cell(panel, label, 16, "high")) == pytest.approx(expected)
    one = apart(panel, "alibi", 16)
    expected = interval_of_ratio(factor * (noise[:2].mean(0) - noise[2]), sizes)
    assert (one.low, one.high) == pytest.approx(expected)
    said = "95 % interval over documents"
    assert spread_text(panel) == f"(low–high): {said}"
    assert "1 seed, too few to rank over: another seed could change this" in limits(report.summary)


def test_seeds_that_all_have_are_in_the_interval_the_same_seed_against_the_same(run_of_documents):
    rng = np.random.default_rng(1)
    of_seed = {
        0: 3.0,
        1: -2.0,
        2: 0.5,
    }  # the same for both encodings, so that it cancels
    nats = {
        (encoding, seed): np.array(TOKENS) * (2 + shift + 0.02 * of_seed[seed])
        + rng.normal(0, 0.01, len(TOKENS))
        for encoding, shift in (("alibi", 0.0), ("rope", 0.02))
        for seed in of_seed
    }
    runs = [run_of_documents(f"{e}{s}", e, own, s) for (e, s), own in nats.items()]
    panel = panel_of(runs, protocols=["nonoverlapping"])
    assert set(panel["interval"]) == {"95 % interval over seeds and documents"}
    factor = 1 / math.log(2) / (3 * sum(TOKENS))
    of = {key: factor * own.sum() for key, own in nats.items()}
    one = apart(panel, "rope", 16)
    differences = [of["rope", seed] - of["alibi", seed] for seed in of_seed]
    over_seeds = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert one.value == pytest.approx(np.mean(differences))
    assert one.low < over_seeds.low and one.high > over_seeds.high and one.sign == 1
    # Alone, each is as uncertain as the seeds make it; their difference is not.
    assert panel["high"].iloc[0] - panel["low"].iloc[0] > 5 * (one.high - one.low)
    # Different seeds cannot be paired.
    others = [run_of_documents(f"x{s}", "rope", nats["rope", s], s + 5) for s in of_seed]
    unpaired = apart(panel_of([*runs[:3], *others], protocols=["nonoverlapping"]), "rope", 16)
    assert unpaired.value == pytest.approx(one.value) and unpaired.sign == 0


def test_a_difference_is_surer_than_two_intervals_that_overlap(run_of_documents):
    """Documents are of very different difficulty, and one encoding is a little better on each of them."""
    nats = np.array(TOKENS) * np.array([1.0, 4.0, 2.0, 3.0, 1.5, 2.5, 2.2])
    runs = [run_of_documents("a", "alibi", nats), run_of_documents("b", "rope", nats * 1.01)]
    report = build(runs, protocols=["nonoverlapping"])
    (panel,) = report.panels
    assert cell(panel, "alibi", 16, "high") > cell(panel, "rope", 16, "low")
    assert apart(panel, "rope", 16).sign == 1
    assert ranks(panel) == {"alibi": 1, "rope": 2} and "**" in markdown(report)
    (found,) = findings(report.summary)
    assert found.leader == "alibi" and found.is_trained and [*found.ahead_of] == ["rope"]
    assert found.ahead_of["rope"] == apart(panel, "rope", 16)


def test_ties_share_a_rank(run_of_examples):
    scores = {
        "alibi": [1] * 90 + [0] * 10, "rope": [1] * 89 + [0] * 11, "t5": [1] * 50 + [0] * 50,
        "none": [1] * 49 + [0] * 51, "learned": [0] * 100,
    }  # fmt: skip
    runs = [run_of_examples(name, name, own) for name, own in scores.items()]
    report = build(runs, protocols=["accuracy"])
    (panel,) = report.panels
    assert ranks(panel) == {"alibi": 1, "rope": 1, "t5": 3, "none": 3, "learned": 5}
    assert first(report, "reference") == [("alibi",)]
    (shown,) = verdict(report)
    best, tied, ahead = shown.cells.iloc[:3, 0]
    assert best == "alibi" and tied.startswith("rope -0.010 (-0.0") and ahead.startswith("t5 -0.400 (")
    assert ", none -0.410 (" in ahead and ", learned -0.900 (" in ahead
    table = markdown(report).split("difference to alibi")[1].split("\n\n")[1]
    assert "| 1= |" in table and "| 3= |" in table and "| 5 |" in table


@pytest.mark.parametrize("draw", range(8))
def test_verdict_and_ranks_agree_on_random_scores(run_of_examples, draw):
    """A worse mean never has a better rank, and the best is ahead of exactly those whose rank is not 1."""
    rng = np.random.default_rng(draw)
    seeds, runs = 1 + draw % 4, []
    for name in ("alibi", "rope", "none", "t5", "learned"):
        # Some encodings vary from seed to seed, so that intervals are of different widths.
        middle, apart = rng.random(), rng.choice([0.01, 0.5])
        for seed in range(seeds):
            rate = np.clip(middle + apart * rng.standard_normal(), 0, 1)
            runs.append(run_of_examples(f"{name}{seed}", name, rng.random(30) < rate, seed))
    table = build(runs, protocols=["accuracy"]).summary
    ranked = table[table["length"] == 16].sort_values("mean", ascending=False)
    assert ranked["rank"].is_monotonic_increasing and ranked["rank"].iloc[0] == 1
    (found,) = findings(table)
    assert ranked.loc[ranked["encoding"] == found.leader, "mean"].item() == ranked["mean"].max()
    assert set(found.ahead_of) == set(ranked.loc[ranked["rank"] > 1, "encoding"])
    assert {found.leader, *found.tied_with} == set(ranked.loc[ranked["rank"] == 1, "encoding"])
    assert ranked["interval"].str.contains("seeds").all() == (seeds >= 3)


def test_two_seeds_are_too_few_for_an_interval_over_seeds(run_of_examples):
    """With one over seeds an encoding of two unlike seeds was ranked above a better one."""
    rates = {"alibi": (0.95, 0.94), "rope": (0.53, 0.52), "none": (1.0, 0.0)}
    runs = [
        run_of_examples(f"{name}{seed}", name, [1] * round(100 * rate) + [0] * round(100 - 100 * rate), seed)
        for name, own in rates.items()
        for seed, rate in enumerate(own)
    ]
    report = build(runs, protocols=["accuracy"])
    (panel,) = report.panels
    assert ranks(panel) == {"alibi": 1, "rope": 2, "none": 2}
    assert set(panel["interval"]) == {"95 % interval over examples"}
    assert "2 seeds, too few to rank over" in limits(report.summary)[-1]


def test_the_reference_can_be_named_and_a_wrong_name_is_reported(run_of_examples):
    runs = [
        run_of_examples(n, n, [1] * k + [0] * (50 - k)) for n, k in (("alibi", 40), ("rope", 20), ("t5", 10))
    ]
    panel = panel_of(runs, protocols=["accuracy"], reference="rope")
    assert set(panel["reference"]) == {"rope"} and apart(panel, "alibi", 16).value == pytest.approx(0.4)
    with pytest.raises(InputError, match="--reference: no curve is called 'roep'; did you mean 'rope'"):
        build(runs, reference="roep")
    assert "--reference rope" in build(runs, protocols=["accuracy"], reference="rope").command


def test_rows_without_units_have_differences_without_intervals(write_run, edit):
    runs = [write_run("a"), write_run("b", "rope", values={16: 1.6, 32: 1.7})]
    (file,) = (runs[1] / "evaluation" / "measurements").iterdir()
    edit(
        file,
        lambda made: made | {"rows": [{k: v for k, v in r.items() if k != "units"} for r in made["rows"]]},
    )
    report = build(runs)
    (panel,) = report.panels
    one = apart(panel, "rope", 16)
    assert (one.value, one.low, one.high) == (pytest.approx(0.1), None, None)
    assert ranks(panel) == {"alibi": None, "rope": None}
    # Each by itself has the interval of its row.
    assert panel["low"].notna().all()
    assert "no ranking at 16: the scores of each document are not stored" in limits(report.summary)


def test_an_infinite_loss_of_one_document_is_no_rank(write_run):
    runs = [write_run("a"), write_run("b", "rope", values={16: None, 32: 1.6}), write_run("c", "t5")]
    panel = panel_of(runs)
    assert ranks(panel) == {"alibi": 1, "t5": 1, "rope": None}
    assert apart(panel, "rope", 16).value is None


def test_a_difference_over_other_text_blocks_has_no_interval():
    def in_units(kind, count):
        columns = {kind: [*range(count)], "nats": [*map(float, range(5, 5 + count))], "tokens": [7] * count}
        value = sum(columns["nats"]) / 7 / count
        row = SimpleNamespace(Index=0, seed=0, value=value, low=math.nan, high=math.nan)
        return make_sample("loss_nats", [row], {0: Units(**columns)})

    blocks, fewer, documents = in_units("blocks", 13), in_units("blocks", 6), in_units("documents", 13)
    basis = basis_of([blocks, blocks])
    assert difference(blocks, blocks, basis).sign == 0
    for one, other in ((blocks, fewer), (blocks, documents), (documents, blocks)):
        apart = difference(one, other, basis)
        assert apart.sign is None and "at the same lengths" in apart.why
