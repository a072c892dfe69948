"""The pages of results hold the numbers of the stored measurements."""

import itertools
import json
import math
import re
import shutil
import statistics
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import trim_mean

import leaderboard
import results
from board.boards import effective_length, read_boards
from board.correlation import spearman, without_a_family
from board.figures import NEXT, looks
from board.measured import DISPLAYED, Measured, read_measured, stored_name
from board.pairs import RISING, Estimate, Spread
from board.scores import STEPS, bootstrap, draws_of, interquartile_mean, loss_board, mean_losses, task_board
from board.values import _repeats as repeats
from zoo import registry
from zoo.comparison.stored import write
from zoo.evaluation.interval import interval_of_mean

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "scripts" / "results"
ENCODINGS = ("alibi", "rope", "t5")
TEXTS = ("none", "rope", "t5", "fox", "learned")
MASKED = ("none", "rope", "deberta")
SEEDS = (0, 1, 2)
LENGTHS = (36, 48)
"""Lengths of copies that the board counts."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of a few entries: in max_index three encodings, of which one lacks the last seed. Of the
    tasks of decoders only copy has half of the encodings."""
    folder = tmp_path_factory.mktemp("board")
    stored = folder / "stored"
    stored.mkdir()
    for study, wanted in (
        ("max_index", lambda name, seed: name in ENCODINGS and (name, seed) != ("t5", SEEDS[-1])),
        ("copy", lambda name, seed: seed == 0 and name != "path"),
        ("flip_flop", lambda name, seed: seed == 0 and name in ("rope", "none", "alibi")),
        ("flip_flop_log_n", lambda name, seed: seed == 0 and name in ("rope", "none")),
        ("selective_copy", lambda name, seed: seed == 0 and name in ("rope", "fox")),
        ("text", lambda name, seed: seed == 0 and name in TEXTS),
        ("masked_text", lambda name, seed: seed in SEEDS and name in MASKED),
    ):
        kept = [run for run in runs_of(study) if wanted(run.origin["encoding"], run.seed)]
        write(stored / f"{study}.parquet", kept)
    shutil.copy(RESULTS / "floors.json", stored)
    shutil.copytree(results.STUDIES, folder / "studies")
    for file, names, seeds in (
        ("01_max_index.yaml", ENCODINGS, SEEDS),
        ("08_text.yaml", TEXTS, SEEDS[:1]),
        ("09_masked_text.yaml", MASKED, SEEDS),
    ):  # fmt: skip
        study = yaml.safe_load((folder / "studies" / file).read_text())
        changed = study | {"encodings": {seed: [*names] for seed in seeds}, "after_training": {}}
        (folder / "studies" / file).write_text(yaml.safe_dump(changed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "STUDIES", folder / "studies")
        leaderboard.main(["--out", str(folder / "out"), "--stored", str(stored)])
    return folder / "out"


def runs_of(study):
    return [*results.stored_runs(RESULTS / f"{study}.parquet").values()]


def measurements_of(study, encoding, seed=0):
    """The measurements as they were trained come first."""
    known = {(run.origin["encoding"], run.seed): run.measurements for run in runs_of(study)}
    return known[encoding, seed]


def row_of(study, encoding, seed, length):
    rows = measurements_of(study, encoding, seed)[0].rows
    return next(row.model_dump(exclude_unset=True) for row in rows if row.length == length)


def accuracies(encoding, length, measure="accuracy"):
    seeds = SEEDS[:-1] if encoding == "t5" else SEEDS
    return [row_of("max_index", encoding, seed, length)[measure] for seed in seeds]


def cells(page, head):
    """The cells of a table by the name in its first or second column; `head` is in its first row."""
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    start = next(index for index, line in enumerate(lines) if head in line)
    column, table = lines[start].index(head), {}
    for line in lines[start + 2 :]:
        if len(line) != len(lines[start]) or "---" in line[0]:
            break
        table[line[lines[start].index("encoding")]] = line[column]
    return table


def test_the_values_have_the_means_over_seeds(pages):
    text = (pages / "values.md").read_text()
    rows = pd.read_csv(pages / "values.csv").set_index(["study", "encoding", "length", "measure"])
    shares = rows[rows.index.get_level_values("measure").str.contains("accuracy")]
    assert shares[["value", "low", "high"]].stack().dropna().between(0, 1).all()
    for head, length in (("max_index 1x", 64), ("max_index 4x", 256)):
        found = cells(text, head)
        for name in ENCODINGS:
            values = accuracies(name, length)
            row = rows.loc["max_index", name, length, "accuracy"]
            assert found[name] == f"{statistics.fmean(values):.2f}"
            assert row["value"] == pytest.approx(statistics.fmean(values), rel=1e-4)
            assert [*map(float, row["seeds"].split())] == pytest.approx(values, rel=1e-4)


def test_the_interquartile_mean_is_scipys_trimmed_mean():
    rng = np.random.default_rng(0)
    values = rng.random((5, 12))
    expected = trim_mean(values, 0.25, axis=1)
    assert interquartile_mean(values, np.ones(12)) == pytest.approx(expected)
    weights = rng.integers(1, 4, 10)
    weights[0] += -weights.sum() % 4
    repeated = np.repeat(values[:, :10], weights, axis=1)
    assert interquartile_mean(values[:, :10], weights) == pytest.approx(trim_mean(repeated, 0.25, axis=1))


def test_a_score_is_the_mean_above_the_floor(pages):
    """With copy alone on the board: a length that cannot be read scores 0."""
    page = (pages / "boards.md").read_text().partition("## Decoders on tasks")[2]
    floors = json.loads((RESULTS / "floors.json").read_text())["copy"]["accuracy"]
    found, learned = cells(page, "score"), cells(page, "seeds learned")
    scores = {}
    for name in found:
        if found[name] == "–":
            continue
        each = []
        for length in LENGTHS:
            share = row_of("copy", stored_name(name), 0, length).get("accuracy", 0.0)
            floor = max(floors[str(length)].values())
            each.append(max(0.0, (share - floor) / (1 - floor)))
        scores[name] = sum(each) / len(LENGTHS)
        assert found[name] == f"{scores[name]:.2f}"  # one seed has no interval
        whole = row_of("copy", stored_name(name), 0, 24)["accuracy"]
        assert learned[name] == f"{int(whole >= 0.9)} of 1"
    assert len(scores) > 40 and scores["learned"] == 0
    assert [*scores.values()] == sorted(scores.values(), reverse=True)


def made(**scores):
    """The scores of encodings by task: `a=[[0.1, 0.2], [0.3]]` has two seeds in the first and one in the
    second."""
    tasks = {}
    for name, every in scores.items():
        for task, own in enumerate(every):
            rows = [(name, seed, score, score > 0.5) for seed, score in enumerate(own)]
            tasks.setdefault(f"task{task}", []).extend(rows)
    columns = ["encoding", "seed", "score", "learned"]
    return {task: pd.DataFrame(rows, columns=columns) for task, rows in tasks.items()}


def test_a_place_counts_the_encodings_that_are_surely_better():
    noisy, good = [[0.1, 0.9, 0.5, 0.4]] * 3, [[0.95, 0.96, 0.97, 0.94]] * 3
    board = task_board(made(good=good, even=[[0.5] * 4] * 3, noisy=noisy, zero=[[0.0] * 4] * 3))
    assert {name: board.place(name) for name in board.values} == {
        "good": "1", "even": "2–3", "noisy": "2–3", "zero": "4",
    }  # fmt: skip
    assert board.groups() == [["good"], ["even", "noisy"], ["zero"]]
    assert board.learned("noisy") == (3, 12) and board.score_of_learned("noisy") == pytest.approx(0.9)


def test_each_encoding_has_a_look_of_its_own_in_every_figure():
    every = [*registry.encodings.names(), *NEXT]
    assert len({*looks(every).values()}) == len({*every})
    assert looks(["path"])["path"] == looks(every)["path"]


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


def test_a_score_counts_the_reading_measure_and_lengths_of_its_study():
    """Flip-flop: the sparse set. Copies: whole answers at 1.5 and 2 times the trained length."""
    studies = {one.name: one for one in results.read_studies(results.STUDIES)}
    floors = json.loads((RESULTS / "floors.json").read_text())
    named = {seed: ["alibi", "kerple"] for seed in SEEDS[:1]}
    some = [replace(studies[name], encodings=named) for name in ("flip_flop", "copy")]
    board = read_boards(some, RESULTS).tasks
    reading = {}
    for one in measurements_of("flip_flop", "alibi"):
        if one.parameters.get("data") == "sparse":
            reading = {row.length: row.accuracy for row in one.rows}
    copied = {length: row_of("copy", "alibi", 0, length)["accuracy"] for length in (36, 48)}
    for task, own in (("flip_flop_sparse", reading), ("copy", copied)):
        highest = {at: max(floors[task]["accuracy"][str(at)].values()) for at in own if at > 24}
        each = [max(0, (own[at] - floor) / (1 - floor)) for at, floor in highest.items()]
        name = task.removesuffix("_sparse")
        assert board.score("alibi", name) == pytest.approx(statistics.fmean(each))
        assert board.learned("alibi", name) == (1, 1)


def test_few_seeds_have_an_order_and_no_places():
    board = task_board(made(a=[[0.9] * 4, [0.8] * 2], b=[[0.1] * 4] * 2))
    assert board.values == {"a": Estimate(pytest.approx(0.85)), "b": Estimate(pytest.approx(0.1))}
    assert board.place("a") == "" and board.groups() == [["a", "b"]]
    assert [board.place_without_a_task(name) for name in "ab"] == ["1", "2"]


def test_a_new_entry_moves_no_interval_and_a_missing_task_leaves_no_place():
    rng = np.random.default_rng(1)
    scores = {name: rng.random((3, 5)).tolist() for name in "abc"}
    before, after = task_board(made(**scores)), task_board(made(**scores, d=rng.random((3, 5)).tolist()))
    assert {name: after.values[name] for name in "abc"} == before.values
    assert task_board(made(**scores, d=[[1.0]])).values == before.values


def test_one_task_can_decide_the_places_without_it():
    board = task_board(made(a=[[0.9] * 4, [0.1] * 4], b=[[0.1] * 4, [0.9] * 4], c=[[0.4] * 4] * 2))
    assert board.place_without_a_task("a") == board.place_without_a_task("b") == "1–3"


def test_paired_differences_are_those_of_the_comparison():
    """Two paths to the same number: the losses of the boards, and the summary of `zoo compare`."""
    study = next(one for one in results.read_studies(results.STUDIES) if one.name == "masked_text")
    named = {seed: ["alibi", "rope"] for seed in SEEDS}
    one = read_measured(replace(study, encodings=named, protocols=["nonoverlapping"]), RESULTS)
    row = one.at("alibi", 4)
    found = one.losses("alibi")[1024].less(one.losses("rope")[1024])
    expected = row[["difference", "difference_low", "difference_high"]]
    assert [found.value, found.low, found.high] == pytest.approx(expected.tolist())


def test_the_spread_over_seeds_is_that_of_paired_differences():
    rng = np.random.default_rng(2)
    losses = pd.DataFrame(rng.normal(size=(5, 2)), columns=["a", "b"])
    differences = losses["a"] - losses["b"]
    found = Spread(losses)
    assert found.sd == pytest.approx(differences.std() / math.sqrt(2)) and found.freedom == 4
    _, high = interval_of_mean(differences)
    assert found.margin(seeds=len(losses)) == pytest.approx(high - differences.mean())
    every = pd.DataFrame(rng.normal(size=(3, 4)), columns=[*"abcd"])
    moved = every.add(rng.normal(size=3), axis=0).add(rng.normal(size=4), axis=1)
    assert Spread(moved).sd == pytest.approx(Spread(every).sd)
    rising = found.margin((5 * found.sd / RISING, 0)) / found.margin()
    assert rising == pytest.approx(math.sqrt((5**2 + 1) / 2))


def test_seeds_of_few_encodings_serve_the_intervals_of_all():
    """The values and the order are those of the seed that all have; places have the spread of the others."""
    study = next(one for one in results.read_studies(results.STUDIES) if one.name == "masked_text")
    names = ["alibi", "rope", "deberta", "kerple"]
    study = replace(study, encodings={0: names, 1: names[:2], 2: names[:2]}, protocols=["nonoverlapping"])
    one = read_measured(study, RESULTS)
    value = text_rows("rope", "nonoverlapping", "masked_text")[0]["loss_nats"]
    assert {*one.seeds.values()} == {1} and one.at("rope", 1)["mean"] == pytest.approx(value)
    board, means = loss_board(one), mean_losses(one)
    alibi, rope = (one.further.losses(name) for name in names[:2])
    lengths = [length for length in one.study.lengths if length > one.trained]
    seeds = [
        statistics.fmean(alibi[at].by_seed()[seed] - rope[at].by_seed()[seed] for at in lengths)
        for seed in SEEDS
    ]
    assert board.spread.sd == pytest.approx(statistics.stdev(seeds) / math.sqrt(2))
    first, *_, last = board.values
    over_documents, both = means[last].less(means[first]), board.behind[last]
    rises = [board.values[name].value - one.at(name, 1)["mean"] for name in (first, last)]
    sds = [max(board.spread.sd, RISING * rise) for rise in rises]
    margin = math.hypot(over_documents.high - over_documents.value, 4.303 * math.hypot(*sds))
    assert both.value == over_documents.value
    assert both.high - both.value == pytest.approx(margin, rel=1e-3)
    assert board.behind[first] == Estimate(0, 0, 0) and board.places().keys() == {*names}
    two = read_measured(replace(study, encodings={0: names, 1: names[:2]}), RESULTS)
    assert two.further and not loss_board(two).places()


def test_a_study_of_three_seeds_has_ranks_and_one_of_one_seed_none(pages):
    page = (pages / "boards.md").read_text()
    one, several = page.split("\n## Decoders on text")[1].split("Masked text, nats per masked token:")
    assert "mean beyond 1x" in one and "rank" not in one.partition("| --- |")[0].splitlines()[-1]
    assert cells(several, "rank") == {"deberta": "1", "none": "2–3", "rope": "2–3"}


def test_a_page_keeps_its_text_and_gets_its_tables(pages):
    page = "A.\n\n<!-- results: a -->\n\nold\n\n<!-- end -->\n\n<!-- results: b --><!-- end -->\n"
    made = leaderboard.filled(page, {"a": "new"})
    assert made == page.replace("old", "new") == leaderboard.filled(made, {"a": "new"})
    text = (pages / "max_index.md").read_text()
    assert "Point at the first" in text and "Not measured" not in text
    found = cells(text, "512 (8x)")
    assert found.keys() == {*ENCODINGS}
    for name in ENCODINGS:
        assert found[name] == f"{statistics.fmean(accuracies(name, 512)):.2f}"
    for figure in ("max_index", "leaderboard", "leaderboard_all", "text"):
        assert (pages / f"{figure}.png").stat().st_size > 10_000


def test_a_row_has_the_name_of_its_method(pages):
    """Also the page of each study; names in the files of studies serve the stored runs."""
    for page in ("boards.md", "values.md", "copy.md"):
        rows = {line.split(" | ")[0].strip("| ") for line in (pages / page).read_text().splitlines()}
        assert not rows & {*DISPLAYED}
    assert {*DISPLAYED.values()} <= {*pd.read_csv(pages / "values.csv")["encoding"]}


def test_every_results_page_is_short():
    pages = [*(ROOT / "docs" / "results").glob("*.md")]
    assert sum(page.stat().st_size for page in pages) < 200_000
    assert (ROOT / "README.md").stat().st_size <= 9_000


def test_rank_correlation_is_pearsons_of_the_ranks():
    rng = np.random.default_rng()
    pairs = rng.permuted(np.arange(24.0).reshape(2, 12), axis=1).T
    distance = sum((a - b) ** 2 for a, b in zip(*np.argsort(np.argsort(pairs, 0), 0).T, strict=True))
    assert spearman(pairs) == pytest.approx(1 - 6 * distance / (12 * (12**2 - 1)))
    assert spearman(np.array([[1.0, 2.0], [2.0, 5.0], [3.0, 9.0]])) == pytest.approx(1)
    assert math.isnan(spearman(np.array([[1.0, 2.0], [1.0, 5.0], [1.0, 9.0]])))


def test_drope_has_no_row(pages):
    assert measurements_of("copy", "drope")
    for page in ("leaderboard.md", "boards.md", "copy.md", "text.md"):
        assert not re.search(r"^\|.*\bdrope\b", (pages / page).read_text(), re.MULTILINE)


def text_rows(encoding, protocol, study="text"):
    every = measurements_of(study, encoding)
    rows = next(one.rows for one in every if one.protocol == protocol and not one.changed)
    return [row.model_dump(exclude_unset=True) for row in rows]


def test_the_effective_length_is_that_of_sliding_windows(pages):
    found = cells((pages / "boards.md").read_text(), "effective length")
    for name in ("none", "rope", "t5"):
        losses = [row["loss_nats"] for row in text_rows(name, "sliding")]
        kept = [loss <= losses[0] + 0.05 for loss in losses]
        assert found[name] == str(256 * 2 ** (kept.index(False) - 1))
    assert found["fox"] == "≥ 8192"


def of_seeds(rows, lengths, units=()):
    """A study at 256 tokens with the rows of one encoding: seed, length and value."""
    table = pd.DataFrame(rows, columns=["seed", "length", "value"])
    report = types.SimpleNamespace(results=types.SimpleNamespace(units=units))
    study = types.SimpleNamespace(lengths=lengths)
    return types.SimpleNamespace(study=study, trained=256, report=report, measured=lambda *_: table)


def test_effective_lengths_of_seeds_that_differ_are_listed():
    kept, lost = (3.0, 3.04, 3.2), (3.0, 3.06, 3.2)
    rows = [(seed, 256 * 2**place, loss) for seed, losses in enumerate((lost, kept, lost))
            for place, loss in enumerate(losses)]  # fmt: skip
    one = of_seeds(rows, [256, 512, 1024])
    assert effective_length(one, "t5") == "256 (256, 512, 256)"


def test_repeats_have_an_interval_over_seeds():
    changes, units = (0.1, 0.2, 0.4), []
    rows = [(seed, length, 2.0 + change * (length > 256)) for seed, change in enumerate(changes)
            for length in (128, 256, 512, 1024)]  # fmt: skip
    units = [types.SimpleNamespace(columns=lambda: {"bytes": [3, 4]}) for _ in rows]
    found = [float(one) for one in re.findall(r"[-+]\d\.\d+", repeats(of_seeds(rows, [], units), "t5"))]
    margin = 4.303 * statistics.stdev(changes) / math.sqrt(3)
    mean = statistics.fmean(changes)
    assert found == pytest.approx([mean, mean - margin, mean + margin], abs=6e-4)


def test_repeats_are_a_difference_between_far_and_near_ones(pages):
    text = (pages / "values.md").read_text()
    found = cells(text, "repeats beyond less within 1x")
    for name in ("none", "rope"):
        sums = {far: [0.0, 0.0] for far in (False, True)}
        for row in text_rows(name, "repeats"):
            sums[row["length"] > 256][0] += sum(row["units"]["nats"]) / math.log(2)
            sums[row["length"] > 256][1] += sum(row["units"]["bytes"])
        change = sums[True][0] / sums[True][1] - sums[False][0] / sums[False][1]
        assert float(found[name]) == pytest.approx(change, abs=6e-4)


def test_a_checkpoint_in_a_window_of_its_length_is_a_baseline_of_text(pages):
    """Of the evaluations after training this one alone has a row."""
    found = cells((pages / "boards.md").read_text(), "mean beyond 1x")
    assert {name for name in found if name not in TEXTS} == {"rope, window 256"}
    every = measurements_of("text", "rope")
    (rows,) = (one.rows for one in every if one.protocol == "nonoverlapping"
               and one.changed == {"model.window": 256})  # fmt: skip
    mean = statistics.fmean(row.bits_per_byte for row in rows if row.length > 256)
    assert found["rope, window 256"].startswith(f"{mean:.3f} (")


def test_parameters_are_relative_to_none(pages):
    found = cells((pages / "leaderboard.md").read_text(), "parameters")
    assert found["none"] == "1.00 (1.00)" and found["learned"].startswith("1.02")


def test_a_combination_is_of_the_family_of_its_first_encoding():
    study = next(one for one in results.read_studies(results.STUDIES) if one.name == "text")
    expected = {
        "rope": "rotary", "dape": "bias", "interleave": "rotary", "nape": "bias", "nape+entmax": "bias",
        "rope, window 256": "rotary",
    }  # fmt: skip
    assert {name: Measured.family(types.SimpleNamespace(study=study), name) for name in expected} == expected


def test_a_family_that_makes_a_correlation_shows_in_its_range():
    pairs = {f"a{index}": (-index, index) for index in range(4)}  # a smaller loss is better
    pairs |= {f"b{index}": (4 + index, 9 + index) for index in range(5)}
    assert without_a_family(pairs, {name: name[0] for name in pairs}) == pytest.approx((-1, 1))
