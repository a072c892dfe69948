"""A start token before each window and prompt of an imported model: counted as context, never scored."""

import pytest
import torch
from known_windows import LENGTHS, TEXT_PROTOCOLS, contexts, recorded, total_loss, whole_stream
from published import TEXTS, publish
from tokenizers import processors

from zoo import registry
from zoo.data import open_data
from zoo.data.blocks import NOT_SCORED
from zoo.data.text.tokenizer import END, TextTokenizer, train_tokenizer
from zoo.evaluation.protocols.prompts import _judge
from zoo.evaluation.protocols.protocol import build_protocol
from zoo.pretrained.import_model import import_model, read_published
from zoo.reports.evaluate import evaluate
from zoo.runs.card import read_card
from zoo.runs.load import load_run

START = "<s>"


def add_start_token(tokenizer, name=START):
    """A tokenizer whose post-processor puts `name` before a text, and the end token behind it."""
    inner = tokenizer.tokenizer
    inner.add_special_tokens([name])
    special = [(token, inner.token_to_id(token)) for token in {name, END}]
    inner.post_processor = processors.TemplateProcessing(
        single=f"{name} $A {END}", pair=f"{name} $A $B", special_tokens=special
    )
    return TextTokenizer(inner)


@pytest.fixture(scope="module")
def with_start(tmp_path_factory):
    """The path of a tokenizer with a start token: `with_start("<s>")`."""
    folder = tmp_path_factory.mktemp("tokenizers")

    def with_start(name=START):
        file = folder / f"{len(name)}.json"
        add_start_token(train_tokenizer(["the owl ate a plum, and more of nothing"] * 9, 270), name).save(
            file
        )
        return f"data.tokenizer={file}"

    return with_start


@pytest.fixture
def imported(text_recipe, counting, with_start):
    """An imported model of known losses: `imported("evaluate.stride=3")`."""

    def imported(*sets, name=START):
        task, source = counting(text_recipe("decoder", "many", with_start(name), *sets))
        task.card = {"imported": {"from": "elsewhere"}}
        return task, source

    return imported


@pytest.mark.parametrize("protocol", TEXT_PROTOCOLS)
def test_losses_are_those_with_one_token_more_of_context(imported, measure, protocol):
    task, source = imported("evaluate.targets=5", "evaluate.stride=3")
    stream, lowest = whole_stream(source), 0
    for row in measure(protocol, task, source, LENGTHS):
        scored = contexts(protocol, source, task.recipe.evaluate, row["length"], LENGTHS, start=1)
        if protocol == "per_position":
            scored = {t: c for t, c in scored.items() if lowest < c <= row["length"]}
            lowest = row["length"]
        losses = total_loss(task.model, stream, scored)
        assert row["tokens"] == len(scored)
        assert row["loss_nats"] == pytest.approx(sum(losses.values()) / len(losses), rel=1e-6)
        assert max(scored.values()) <= row["length"]


def test_each_window_begins_with_one_start_token_within_its_length(imported, measure):
    task, source = imported()
    start = source.tokenizer.tokenizer.token_to_id(START)
    seen = recorded(task, source)
    measure("nonoverlapping", task, source, [12])
    assert all(len(window) <= 12 and window[0] == start and start not in window[1:] for window in seen)
    assert torch.equal(torch.cat([window[1:] for window in seen]), whole_stream(source)[:200])
    (row,) = measure("nonoverlapping", task, source, [1])
    assert "leaves no room" in row["note"]


def test_a_window_that_begins_with_the_start_token_has_no_second_one(imported, measure):
    """Here the token that closes a document is the start token, and stride 1 begins a window at each."""
    task, source = imported("evaluate.stride=1", name=END)
    end, seen = source.tokenizer.end_token, recorded(task, source)
    (row,) = measure("sliding", task, source, [9])
    assert row["tokens"] == 200
    assert all(window[0] == end and window[1] != end for window in seen)
    assert {len(window) for window in seen} == {8, 9}


@pytest.mark.parametrize("protocol", ["nonoverlapping", "fixed_targets"])
def test_a_length_without_room_for_text_is_a_note(imported, measure, protocol):
    task, source = imported("evaluate.lengths=[1,12]")
    short, long = measure(protocol, task, source, [1, 12])
    assert short["note"] == "the start token leaves no room for text"
    assert "note" not in long and long["tokens"]


def test_the_start_token_decides_the_digest_and_is_recorded(imported):
    def targets(*sets, card=None):
        task, source = imported(*sets)
        task.card = task.card if card is None else card
        (plan,) = build_protocol("sliding", task.recipe.evaluate).plan(task, source, [16])
        return plan.targets

    auto, none = targets(), targets("evaluate.start_token=none")
    assert (auto.start_token, none.start_token) == (START, None)
    assert auto.count == none.count and auto.digest != none.digest
    # A model trained here never read a start token.
    assert targets(card={}) == none


def test_a_prompt_begins_with_one_start_token():
    class Recorder:
        def __call__(self, tokens, wanted):
            self.tokens, self.wanted = tokens, wanted
            return torch.zeros(int(wanted.sum()), 20)

    class Task:
        model = Recorder()

    targets = torch.tensor([[NOT_SCORED, 5, NOT_SCORED], [NOT_SCORED, 6, 7]])
    batch = {"tokens": torch.tensor([[3, 4, 0], [9, 8, 6]]), "targets": targets}
    judged = _judge(Task, 9, batch)
    assert Task.model.tokens.tolist() == [[9, 3, 4, 0], [9, 8, 6, 9]]
    assert Task.model.wanted.nonzero().tolist() == [[0, 2], [1, 1], [1, 2]]
    assert judged["accuracy"].shape == (2,)


def test_prompts_have_the_length_asked_for(imported, measure):
    task, source = imported("evaluate.questions=needle", "evaluate.samples=3")
    shapes = []

    def model(tokens, wanted):
        shapes.append(tokens.shape[1])
        return torch.zeros(int(wanted.sum()), source.vocab_size)

    model.encoding = task.model.encoding
    task.model = model
    (row,) = measure("prompts", task, source, [150])
    assert set(shapes) == {150} and row["examples"] == 3
    made = registry.datasets.load("needle")()
    examples = made.examples(source.stream("test"), source.tokenizer, "test", 149, 3, seed=0)
    assert examples.batch([0])["tokens"].shape[1] == 149


@pytest.mark.slow
@torch.no_grad()
def test_the_loss_of_an_imported_model_is_that_of_transformers(here, cache):
    theirs = publish("llama", here / "published")
    tokenizer = add_start_token(train_tokenizer(TEXTS, 290))
    tokenizer.save(here / "published" / "tokenizer.json")
    sets = ["data.name=sample", "data.documents=12", "data.words=300", f"data.cache={cache}"]
    sets += ["evaluate.max_tokens=60", "evaluate.lengths=[13]"]
    folder = import_model(read_published("published", []), "llama", sets)
    assert read_card(folder)["imported"]["start_token"] == START
    (row,) = evaluate([folder])
    stream = whole_stream(open_data(load_run(folder).task.recipe))[:61].tolist()
    losses = []
    for first in range(0, 60, 12):
        ids = torch.tensor([[tokenizer.tokenizer.token_to_id(START), *stream[first : first + 12]]])
        log_p = theirs(ids).logits[0, 1:].log_softmax(-1)
        losses += (-log_p.gather(1, torch.tensor(stream[first + 1 : first + 13])[:, None])[:, 0]).tolist()
    assert row["loss_nats"] == pytest.approx(sum(losses) / 60, rel=1e-4)
