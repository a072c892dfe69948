"""Questions asked of a language model: scored as they should be, in its own text and tokens."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_recipes import tiny
from torch import nn

from zoo import registry
from zoo.comparison.formatting import protocol_text
from zoo.data import open_data
from zoo.errors import InputError
from zoo.evaluation.evaluate import evaluate_run
from zoo.evaluation.measurement import Measurement, Row
from zoo.evaluation.protocols.prompts import _judge
from zoo.evaluation.protocols.protocol import build_protocol
from zoo.evaluation.store import MEASUREMENTS, store, store_lines
from zoo.models.decoding import decode
from zoo.runs.load import LoadedRun
from zoo.tasks import build_task

SAMPLES = 20


def recipe(cache, *sets):
    text = {"documents": 12, "words": 300, "cache": str(cache), "vocab_size": 400}
    evaluate = {"samples": SAMPLES, "batch_tokens": 1000, "lengths": [128]}
    data = {"name": "sample", "sequence_length": 32, **text}
    return tiny(data, *sets, encoding="rope", evaluate=evaluate)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")

    def opened(*sets):
        made = recipe(cache, *sets)
        return made, open_data(made)

    return opened


class Knows(nn.Module):
    """Knows the answers to some prompts, and of all others only how they begin."""

    def __init__(self, examples, vocab_size):
        super().__init__()
        self.encoding, self.vocab_size = SimpleNamespace(max_length=300), vocab_size
        self.answers = {tuple(p): a if i % 2 else [a[0], *[0] * len(a[1:])] for i, (p, a) in examples}

    def forward(self, tokens, wanted):
        said = []
        for row, asked in zip(tokens.tolist(), wanted, strict=True):
            said += self.answers[tuple(row[: int(asked.int().argmax()) + 1])]
        return nn.functional.one_hot(torch.tensor(said), self.vocab_size).float()


def test_the_rows_say_which_answers_were_right(opened, measure):
    own, source = opened('evaluate.questions={"name": "needle", "digits": 3}')
    dataset = registry.datasets.load("needle")(digits=3)
    made = dataset.examples(source.stream("test"), source.tokenizer, "test", 200, SAMPLES, seed=0)
    examples = list(enumerate(map(made.example, range(SAMPLES))))
    task = SimpleNamespace(recipe=own, card={}, model=Knows(examples, source.vocab_size))
    row, late = measure("prompts", task, source, [200, 301])
    assert row["units"] == {"scores": [0, 1] * (SAMPLES // 2)} and row["accuracy"] == 0.5
    right = [1.0 if i % 2 else 1 / len(answer) for i, (_, answer) in examples]
    assert row["token_accuracy"] == pytest.approx(np.mean(right)) and row["examples"] == SAMPLES
    assert row["parameters"] == {"questions": {"name": "needle", "kind": "single", "needles": 4, "digits": 3}}
    assert late["note"] == "the encoding ends at 300 tokens" and late["targets"] == row["targets"]


def test_an_answer_is_right_where_greedy_decoding_writes_it(opened, measure):
    own, source = opened("evaluate.questions=needle")
    task = build_task(own, source.vocab_size).eval()
    (row,) = measure("prompts", task, source, [100])
    made = registry.datasets.load("needle")().examples(
        source.stream("test"), source.tokenizer, "test", 100, SAMPLES, seed=0
    )
    # An answer of its own, in place of the true ones, which no untrained model writes.
    prompt, answer = made.example(0)
    written = [int(one) for one in decode(task.model, torch.tensor([prompt]), len(answer))]
    made.example = lambda index: (prompt, written if index == 0 else [*written[:-1], written[-1] ^ 1])
    with torch.no_grad():
        judged = _judge(task, None, made.batch(range(2)))
    assert judged["accuracy"].tolist() == [1.0, 0.0] and row["accuracy"] == 0.0


def test_each_question_is_a_measurement_of_its_own(opened):
    own, source = opened()
    task = SimpleNamespace(
        recipe=own, card={}, model=SimpleNamespace(encoding=SimpleNamespace(max_length=None))
    )
    plans = build_protocol("prompts", own.evaluate).plan(task, source, [30, 300])
    assert [plan.parameters["questions"]["name"] for plan in plans] == [
        "needle", "variable_tracking", "common_words",
    ]  # fmt: skip
    assert len({plan.targets.digest for plan in plans}) == 3
    assert all(
        "tokens are too few for" in plan.lengths[0].note and not plan.lengths[1].note for plan in plans
    )
    assert plans[0].lengths[1].tokens == SAMPLES * 300


def test_what_is_asked_is_named():
    parameters = {"questions": {"name": "needle", "kind": "multi_key", "needles": 4, "digits": 5}}
    said = "prompts (questions needle, kind multi_key, needles 4, digits 5)"
    assert protocol_text("prompts", parameters) == said


def test_what_cannot_be_asked(tmp_path):
    for questions, message in (
        ("needles", "no such dataset: 'needles'; did you mean 'needle'?"),
        ("copy", "no such dataset: 'copy'; there are: common_words, frequent_words, needle"),
        ('{"name": "needle", "kind": "two"}', "evaluate.questions.kind: "),
        ('{"name": "needle", "corpus": "sample"}', "key 'corpus' of 'needle' is set under `data`"),
        ("[]", "evaluate.questions: "),
    ):
        with pytest.raises(InputError, match=r"evaluate\.questions") as raised:
            recipe(tmp_path, f"evaluate.questions={questions}")
        assert message in str(raised.value)


def test_kept_prompts_are_those_that_were_scored(opened, measure, tmp_path):
    """RULER's keys; the file of a length goes with the measurement, and with an earlier step."""
    own, source = opened("evaluate.questions=[niah_multivalue]", "evaluate.keep_prompts=true")
    examples = registry.datasets.load("needle")(kind="multi_value", digits=7).examples(
        source.stream("test"), source.tokenizer, "test", 300, SAMPLES, seed=0
    )
    made = [examples.example(index) for index in range(SAMPLES)]
    task = SimpleNamespace(recipe=own, card={}, model=Knows(enumerate(made), source.vocab_size))
    protocol = build_protocol("prompts", own.evaluate)
    (plan,) = protocol.plan(task, source, [300, 301])
    row, late = measure("prompts", task, source, [300, 301])
    about = {"run": "one", "encoding": "rope", "seed": 0, "train_length": 32, "checkpoint": "last.ckpt"}
    about |= {"protocol": "prompts", "parameters": plan.parameters, "targets": plan.targets}
    numbers = {key: row[key] for key in ("length", "examples", "accuracy", "units")}
    one = Measurement(step=1, rows=[Row(**numbers)], **about)
    store(tmp_path, [one])
    store_lines(tmp_path, one, protocol.lines(task, source, one))
    (file,) = (tmp_path / MEASUREMENTS).glob("*.jsonl")
    assert file.name == f"{Path(one.file_name).stem}-300.jsonl"
    for index, (line, (prompt, answer)) in enumerate(zip(file.open(), made, strict=True)):
        kept = json.loads(line)
        assert source.tokenizer.encode(kept["input"]).tolist() == prompt
        assert (
            " " + ", ".join(kept["outputs"]) == source.tokenizer.decode(answer) and len(kept["outputs"]) == 4
        )
        assert kept["index"] == index and kept["score"] == index % 2
        assert kept["length"] == len(prompt) + len(answer)
    noted = Measurement(step=2, rows=[Row(length=301, note=late["note"])], **about)
    store(tmp_path, [noted])
    store_lines(tmp_path, noted, protocol.lines(task, source, noted))
    assert not [*(tmp_path / MEASUREMENTS).glob("*.jsonl")]


def test_evaluation_keeps_prompts_where_asked(tmp_path, opened):
    """A base model of RoPE reads prompts far beyond its trained length, none of them cut."""
    own, source = opened("evaluate.questions=[niah_single_1]", "evaluate.keep_prompts=true",
                         "evaluate.samples=1")  # fmt: skip
    task = build_task(own, source.vocab_size).eval()
    task.card = {"steps": 0}
    run = LoadedRun(path=tmp_path, folder=tmp_path, checkpoint=tmp_path / "last.ckpt", task=task)
    (one,) = evaluate_run(run, source, [16_384], ["prompts"])
    assert one.rows[0].note is None and one.rows[0].tokens == 16_384
    (file,) = (tmp_path / MEASUREMENTS).glob("*.jsonl")
    assert 16_384 - 60 <= json.loads(file.read_text())["length"] <= 16_385
