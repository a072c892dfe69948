"""The pages of results hold the numbers of the stored measurements."""

import json
import math
import re
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

import leaderboard
import results
from board.boards import TaskBoard, read_boards
from board.correlation import without_a_family
from board.growth import STARTED_FROM, growth, growth_table
from board.measured import DISPLAYED, read_measured, stored_name
from board.plots import NEXT
from board.variants import gate_text
from zoo import registry
from zoo.comparison.stored import write
from zoo.figures.style import family, styles

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


def test_a_score_is_the_mean_above_the_floor(pages):
    """With copy alone on the board: a length that cannot be read scores 0."""
    page = (pages / "boards.md").read_text().partition("## Decoders on tasks")[2]
    floors = json.loads((RESULTS / "floors.json").read_text())["copy"]["accuracy"]
    found, answers = cells(page, "score"), cells(page, "answers at 1x")
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
        assert answers[name] == f"{whole:.2f}"
    assert len(scores) > 40 and scores["learned"] == 0
    assert [*scores.values()] == sorted(scores.values(), reverse=True)


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
        whole = row_of(name, "alibi", 0, 24)["accuracy"]
        assert whole >= 0.9 and board.answers("alibi", name) == f"{whole:.2f}"


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
    floors = json.loads((RESULTS / "floors.json").read_text())["max_index"]["accuracy"]["512"]
    assert found.pop("*the floor*") == f"{max(floors.values()):.2f}"
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


def test_rows_of_a_page_are_of_one_kind():
    """The novels were read as two kinds, of other targets; the page has that of most encodings."""
    study = next(one for one in results.read_studies(results.STUDIES) if one.name == "text")
    rows = read_measured(study.pages[1], RESULTS).rows
    assert rows["targets"].nunique() == 1 and rows["encoding"].nunique() > 10


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
    (rows,) = (one.rows for one in every if one.protocol == "sliding"
               and one.changed == {"model.window": 256})  # fmt: skip
    mean = statistics.fmean(row.bits_per_byte for row in rows if row.length > 256)
    assert found["rope, window 256"].startswith(f"{mean:.3f} (")


def test_one_task_can_decide_the_ranks_without_it():
    scores = {"a": (0.9, 0.1), "b": (0.1, 0.9), "c": (0.4, 0.4)}
    rows = [
        (task, name, seed, own[task]) for name, own in scores.items() for task in (0, 1) for seed in range(4)
    ]
    board = TaskBoard(pd.DataFrame(rows, columns=["task", "encoding", "seed", "score"]))
    assert board.without["a"] == board.without["b"] == "1–3"
    one_seed = TaskBoard(board.scores[board.scores["seed"] == 0])
    assert one_seed.ranking.rank("a") == "" and one_seed.without == {"a": "1–3", "b": "1–3", "c": "2"}


def test_each_encoding_has_a_look_of_its_own_in_every_figure():
    every = [*registry.encodings.names(), *NEXT]
    assert len({*styles(every, every).values()}) == len({*every})
    assert styles(["path"], every)["path"] == styles(every, every)["path"]


def test_encodings_with_one_seed_have_a_value_and_no_rank():
    study = next(one for one in results.read_studies(results.STUDIES) if one.name == "masked_text")
    names = ["alibi", "rope", "deberta", "kerple"]
    study = replace(study, encodings={0: names, 1: names[:3], 2: names[:3]}, protocols=["nonoverlapping"])
    mixed = read_measured(study, RESULTS).ranking
    several = read_measured(replace(study, encodings=dict.fromkeys(SEEDS, names[:3])), RESULTS).ranking
    assert mixed.intervals == several.intervals and mixed.groups()[0][0] == next(iter(several.values))
    assert [name for name in mixed.values if name != "kerple"] == [*several.values]
    for of_mixed, of_several in ((mixed.values, several.values), (mixed.behind, several.behind)):
        assert {name: of_mixed[name] for name in of_several} == of_several
    losses = [row["loss_nats"] for row in text_rows("kerple", "nonoverlapping", "masked_text")]
    own = mixed.values["kerple"]
    assert own.value == pytest.approx(statistics.fmean(losses[1:])) and own.sign is None
    assert mixed.rank("kerple") == ""
    two = read_measured(replace(study, encodings={0: names, 1: names[:2]}), RESULTS)
    assert not two.ranking.intervals


def test_a_combination_is_of_the_family_of_its_first_encoding():
    study = next(one for one in results.read_studies(results.STUDIES) if one.name == "text")
    expected = {"rope": "rotary", "dape": "bias", "irope": "rotary", "heads": "bias", "nape_entmax": "bias"}
    specs = {name: study.recipe(name, 0).as_dict()["model"]["encoding"] for name in expected}
    assert {name: family(spec) for name, spec in specs.items()} == expected
    assert family("not here") == ""


def test_a_family_that_makes_a_correlation_shows_in_its_range():
    pairs = [(-index, index, "a") for index in range(4)]  # a smaller loss is better
    pairs += [(4 + index, 9 + index, "b") for index in range(5)]
    found = without_a_family(pd.DataFrame(pairs, columns=["rise", "score", "family"]))
    assert found == pytest.approx((-1, 1))


def test_gates_on_text_stand_beside_the_models_without():
    studies = [one for one in results.read_studies(results.STUDIES) if one.name in ("text", "gate_text")]
    boards = read_boards(studies, RESULTS)
    rows = gate_text(boards.text, boards.others["gate_text"]).splitlines()[2:]
    for name, row in zip(("none", "rope", "alibi"), rows, strict=True):
        own = [text_rows(name, "sliding"), text_rows(f"{name}_gated", "sliding", "gate_text")]
        values = [next(at["bits_per_byte"] for at in one if at["length"] == 1024) for one in own]
        assert " → ".join(f"{value:.3f}" for value in values) in row


def test_losses_of_earlier_checkpoints_are_over_the_tokens_seen(tmp_path):
    """Of a stored run whose measurements were taken at three steps; one after a change is left out."""
    stored = next(one for one in runs_of("text") if one.origin["encoding"] == "rope" and one.seed == 0)
    one = next(one for one in stored.measurements if one.protocol == "sliding" and not one.changed)
    steps = (10, 100, 700)
    measured = [one.model_copy(update={"step": step, "checkpoint": f"step={step}.ckpt"}) for step in steps]
    changed = one.model_copy(update={"changed": {"model.window": 256}})
    write(tmp_path / "text.parquet", [replace(stored, measurements=(*measured, changed))])
    study = next(one for one in results.read_studies(results.STUDIES) if one.name == "text")
    during = {"steps": [10, 100], "lengths": [256, 1024], "protocols": ["sliding"]}
    found = growth(replace(study, during=during), tmp_path)
    tokens = [256 * 32 * step for step in steps]
    assert [*found["tokens"]] == [*tokens, *tokens] and {*found["length"]} == {256, 1024}
    row = growth_table(found).splitlines()[-1]
    assert row.count(f"{one.rows[0].bits_per_byte:.3f}") == 2
    lowest = found["value"].where(found["tokens"] != tokens[1], 1.0)
    assert growth_table(found.assign(value=lowest)).count("→ 1.000 →") == 2


def test_a_model_that_is_trained_on_has_its_losses_before_that(tmp_path):
    """Those with the options of the entry, of the targets that its checkpoints are read on."""
    stored = next(one for one in runs_of("text") if one.origin["encoding"] == "rope" and one.seed == 0)
    one = next(one for one in stored.measurements if one.protocol == "sliding" and not one.changed)
    yarn = {"scaling": "yarn", "factor": 4, "original_length": 512}
    yarn = {f"model.encoding.{key}": value for key, value in yarn.items()}
    other = one.model_copy(update={"targets": one.targets.model_copy(update={"digest": "0" * 64})})
    before = [other, one, one.model_copy(update={"changed": yarn})]
    write(tmp_path / STARTED_FROM[0], [replace(stored, path=STARTED_FROM[1], measurements=tuple(before))])
    study = next(one for one in results.read_studies(results.STUDIES) if one.name == "extend_novels")
    during = {"steps": [9], "lengths": [256, 1024], "protocols": ["sliding"]}
    after = tuple(
        one.model_copy(update={"step": step, "checkpoint": f"step={step}.ckpt"}) for step in (9, 72)
    )
    names = ("rope", "rope_yarn", "rope_base", "drope")
    write(tmp_path / "extend_novels.parquet", [
        replace(stored, path=f"extend_novels_{name}_seed0", measurements=after) for name in names
    ])  # fmt: skip
    found = growth(replace(study, during=during), tmp_path)
    tokens = found[found["length"] == 1024].groupby("encoding")["tokens"].apply(list).to_dict()
    trained = [9 * 16384, 72 * 16384]
    assert tokens == {
        "rope": [0, *trained], "rope_yarn": [0, *trained], "rope_base": trained, "drope": trained,
    }  # fmt: skip
    assert growth_table(found).splitlines()[-1].count("– → ") == 2
