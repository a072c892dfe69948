"""`data.tokenizer: characters`: from a text to a trained, evaluated and generating run."""

import json
import math

from zoo.cli import main
from zoo.comparison.runs import read_runs
from zoo.data import open_data
from zoo.data.text.tokenizer import open_tokenizer
from zoo.generation.text import open_generator
from zoo.reports.fit import fit
from zoo.reports.report import about_runs
from zoo.runs.load import load_run
from zoo.training.plan import plan_of

TRAIN = "the cat sat on the mat\nthe dog sat on the log\n" * 8
VALID = "the ox sat\n" * 8  # x is not in the training split


def test_a_run_of_characters_counts_the_bytes_of_its_text(here, recipe):
    (here / "text").mkdir()
    (here / "text" / "train.txt").write_text(TRAIN)
    (here / "text" / "valid.txt").write_text(VALID)
    data = {"name": "text", "root": "text", "cache": "cache", "sequence_length": 8, "batch_size": 2}
    small = ["evaluate.lengths=[8]", "trainer.max_steps=2", f"data={json.dumps(data)}"]
    run = fit(recipe("text", *small, "data.tokenizer=characters"))
    letters = sorted(set(TRAIN))
    assert letters == ["\n", " ", *"acdeghlmnost"]
    ours = open_tokenizer(str(run / "tokenizer.json"))
    assert ours.vocab_size == 2 + 256 + 14 == load_run(run).task.vocab_size
    source = open_data(load_run(run).task.recipe)
    assert source.stream("train")[:].tolist() == [258 + letters.index(one) for one in TRAIN] + [0]
    assert (source.stream("valid")[:] == 2 + ord("x")).sum() == 8

    # One token is one byte, the end of the document none: bits per byte by hand.
    (row,) = json.loads((run / "evaluation" / "lengths.json").read_text())
    assert row["tokens"] == 88
    assert math.isclose(row["bits_per_byte"], row["loss_nats"] * 88 / 87 / math.log(2), rel_tol=1e-6)
    assert main(["evaluate", str(run)]) == 0
    assert len([*(here / "cache").glob("*/meta.json")]) == 1
    assert plan_of(load_run(run).task.recipe).vocab_size == 272
    assert dict(about_runs(read_runs([run])))["vocabulary"] == "272"
    assert open_generator(run).generate(["the fox"], 4)[0].tokens > 0

    other = fit(recipe("text", *small, "name=bpe", "data.vocab_size=272"))
    assert open_tokenizer(str(other / "tokenizer.json")).fingerprint != ours.fingerprint
