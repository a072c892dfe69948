"""`evaluate --data`: a run is scored on another corpus, through its own tokenizer."""

import json
import shutil
from collections import Counter
from itertools import pairwise

import pytest

from zoo.cli import main
from zoo.data import open_data
from zoo.evaluation.load import load_runs
from zoo.evaluation.protocols.protocol import build_protocol
from zoo.reports.fit import fit


@pytest.fixture
def run(here, recipe):
    return fit(recipe("text", "evaluate.lengths=[8]", "evaluate.max_tokens=64", "trainer.max_steps=2"))


def rows_of(run):
    return json.loads((run / "evaluation" / "lengths.json").read_text())


def test_another_corpus_has_measurements_of_its_own(run, here, capsys):
    text = "the dog sat on the log, and the ünknown cat on the mat. " * 20
    (here / "other").mkdir()
    for name in ("a.txt", "b.txt"):
        (here / "other" / name).write_text(f"{name} {text}")
    (here / "other.yaml").write_text("name: text\nroot: other\nwhole: true\n")
    assert main(["evaluate", str(run), "--data", "other/"]) == 0
    assert "data other" in capsys.readouterr().out
    own, other = sorted(rows_of(run), key=lambda row: len(row["parameters"]))
    assert own["parameters"] == {} and other["parameters"] == {"data": "other"}
    assert own["targets"] != other["targets"] and other["bits_per_byte"] > 0
    # By a file, and by the name of a dataset with its options: the same text, and another.
    assert main(["evaluate", str(run), "--data", "other.yaml"]) == 0
    sets = ["--set", "data.documents=9", "--set", "data.words=80", "--set", "evaluate.split=test"]
    assert main(["evaluate", str(run), "--set", "data.name=sample", *sets]) == 0
    found = {json.dumps(row["parameters"]): row for row in rows_of(run)}
    assert found['{"data": "other.yaml"}']["loss_nats"] == other["loss_nats"]
    assert found['{"split": "test", "data": "sample"}']["targets"] != own["targets"]


def test_rare_bigrams_are_rare_in_the_text_of_the_run(here, recipe, capsys):
    words = [f"{a}{b}" for a in "bcdfg" for b in "aeiou"]
    for folder, step in (("own", 7), ("other", 11)):
        (here / folder).mkdir()
        for name in range(6):
            text = " ".join(words[(name + step * i * i) % 25] for i in range(60))
            (here / folder / f"{name}.txt").write_text(text)
    own = f"data={{name: text, root: {here / 'own'}, sequence_length: 16, batch_size: 2, vocab_size: 270}}"
    scored = "evaluate={max_tokens: 300, lengths: [64], rare_below: 3}"
    run = fit(recipe("text", "trainer.max_steps=1", own, scored))
    evaluate = ["evaluate", str(run), "--protocol", "repeats", "--data", "other"]
    assert main(evaluate) == 0
    ((loaded, source),) = load_runs([run], data="other")
    assert len(source.stream("train")) == 0
    stream = source.stream("valid")[:301].tolist()
    seen = Counter(pairwise(open_data(loaded.task.recipe).stream("train")[:].tolist()))
    expected = 0
    for first in range(0, 300, 64):
        before = set()
        for bigram in pairwise(stream[first : min(first + 64, 300) + 1]):
            expected += bigram in before and seen[bigram] < 3
            before.add(bigram)
    rows = [row for row in rows_of(run) if row["protocol"] == "repeats"]
    assert 0 < sum(row["tokens"] for row in rows) == expected < 200
    capsys.readouterr()
    (here / "own" / "0.txt").write_text("changed")
    assert main(evaluate) == 2
    assert "repeats counts bigrams in the training text" in capsys.readouterr().err
    shutil.rmtree(here / "own")
    assert main(evaluate) == 2
    assert "repeats counts bigrams in the training text" in capsys.readouterr().err


def test_a_corpus_that_is_not_there_is_refused(run, here, capsys):
    assert main(["evaluate", str(run), "--data", "wikitext-4"]) == 2
    assert "wikitext" in capsys.readouterr().err


def test_generated_data_is_scored_with_other_options(here, recipe, capsys):
    run = fit(recipe("max_index", "trainer.max_steps=1", "evaluate.lengths=[8]"))
    own = rows_of(run)
    uniform = ["--data", "max_index", "--set", "data.order=uniform"]
    assert main(["evaluate", str(run), *uniform]) == 0
    before, other = sorted(rows_of(run), key=lambda row: len(row["parameters"]))
    assert [before] == own and other["parameters"] == {"data": "order uniform"}
    ((loaded, source),) = load_runs([run], data="max_index", sets=["data.order=uniform"])
    (plan,) = build_protocol("accuracy", loaded.task.recipe.evaluate).plan(loaded.task, source, [8])
    assert plan.targets.digest == other["targets"] != before["targets"]
    # Data without another option are the run's own; another vocabulary or dataset means nothing to the model.
    assert main(["evaluate", str(run), "--data", "max_index"]) == 0 and len(rows_of(run)) == 2
    for wrong in (["--data", "max_index", "--set", "data.num_values=9"], ["--data", "flip_flop"]):
        capsys.readouterr()
        assert main(["evaluate", str(run), *wrong]) == 2
        assert "trained" in capsys.readouterr().err
