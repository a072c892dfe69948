"""`evaluate --data`: a run is scored on another corpus, through its own tokenizer."""

import json
import shutil
from collections import Counter
from itertools import pairwise

import pytest

from zoo.cli import main
from zoo.errors import InputError
from zoo.evaluation.load import load_runs
from zoo.evaluation.protocols.protocol import build_protocol
from zoo.reports.fit import fit
from zoo.tasks.task import Task


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
    assert own["parameters"] == {} and other["parameters"] == {"data": "other", "split": "all"}
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
    ((_, source),) = load_runs([run], data="other")
    stream = source.stream("all")[:301].tolist()
    seen = Counter(pairwise(load_runs([run])[0][1].stream("train")[:].tolist()))
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


def write_words(folder, names):
    """A file of 40 words for each name, which are in no other file."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text(" ".join(f"{name[:2]}{number}" for number in range(40)))


NOVELS = [f"{number:02}.txt" for number in range(12)]


@pytest.mark.parametrize(
    "names", [NOVELS, [f"train-{one}" for one in NOVELS[2:]] + ["valid.txt", "test.txt"]]
)
def test_all_documents_of_a_folder_are_scored(run, here, capsys, names):
    write_words(here / "other", names)
    scored = "--set", "evaluate.max_tokens=100000"
    assert main(["evaluate", str(run), "--data", "other", *scored]) == 0
    assert "text: 12 files, 12 documents: all scored" in capsys.readouterr().err
    assert main(["evaluate", str(run), "--data", "other", *scored, "--set", "evaluate.split=valid"]) == 0
    rows = {row["parameters"].get("split"): row for row in rows_of(run) if row["parameters"].get("data")}
    assert rows["all"]["documents"] == 12 and rows[None]["documents"] == 1
    ((_, source),) = load_runs([run], data="other")
    text = source.tokenizer.decode(source.stream("all")[:])
    order = names if names == NOVELS else [*names[:10], "valid.txt", "test.txt"]
    assert [part.split()[0] for part in text.split("<|endoftext|>")[:12]] == [f"{one[:2]}0" for one in order]


def test_the_text_of_the_training_is_not_scored_as_a_whole(here, recipe, capsys, monkeypatch):
    write_words(here / "own", NOVELS)
    own = f"data={{name: text, root: {here / 'own'}, sequence_length: 8, batch_size: 2, vocab_size: 270}}"
    sets = "trainer.max_steps=1", own, "evaluate={lengths: [8]}"
    run = fit(recipe("text", *sets))
    assert "text: 12 files, 12 documents: 10 train, 1 valid, 1 test, by a hash" in capsys.readouterr().out
    assert main(["evaluate", str(run), "--data", "own"]) == 0
    assert [row["parameters"] for row in rows_of(run)] == [{}]
    for data in ([], ["--data", "own"]):
        assert main(["evaluate", str(run), *data, "--set", "evaluate.split=all"]) == 2
        assert "evaluate.split: all is for a text that the model was not" in capsys.readouterr().err
    for kind, more in (("text", sets), ("max_index", ["evaluate.lengths=[8]"])):
        with pytest.raises(InputError, match=r"evaluate\.split: all is for a text that the model is not"):
            fit(recipe(kind, *more, "evaluate.split=all"))
    # Of an imported model it is not the text of the training.
    card = {"imported": {"from": "elsewhere"}}
    monkeypatch.setattr(Task, "card", property(lambda task: card, lambda task, value: None), raising=False)
    for split, given in (("all", []), ("test", ["evaluate.split=test"])):
        ((loaded, source),) = load_runs([run], sets=given)
        assert loaded.task.recipe.evaluate.split == split and len(source.stream(split)) > 10


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
