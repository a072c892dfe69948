"""`data.packing: separate` in an evaluation: the loss of each document is that of the document alone."""

import pytest
import torch
import torch.nn.functional as F
from known_windows import documents_of, whole_stream
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from zoo.contract.subject import draw_large_weights
from zoo.data import open_data
from zoo.data.text import cache as token_cache
from zoo.errors import InputError
from zoo.tasks import build_task

SIZE = 200
SEPARATE = ("data.packing=separate", "model.encoding=rope", "model.logit_scale=log_n")


def opened(recipe):
    source = open_data(recipe)
    task = build_task(recipe, source.vocab_size).eval()
    task.card = {}
    return task, source


@torch.no_grad()
def test_the_loss_is_that_of_each_document_alone(text_recipe, measure):
    task, source = opened(text_recipe("decoder", "many", *SEPARATE))
    (row,) = measure("nonoverlapping", task, source, [SIZE])
    stream, losses = whole_stream(source)[: SIZE + 1], []
    for first, last in documents_of(source):
        # The end token of the document before opens this one.
        text = stream[max(0, first - 1) : last + 1]
        if len(text) > 1:
            losses.append(F.cross_entropy(task.model(text[None, :-1])[0], text[1:], reduction="sum"))
    assert row["tokens"] == SIZE and len(losses) > 3
    assert row["loss_nats"] == pytest.approx(sum(losses).item() / SIZE, rel=1e-5)
    assert row["parameters"] == {"packing": "separate"}
    packed, _ = opened(text_recipe("decoder", "many", *SEPARATE[1:]))
    (other,) = measure("nonoverlapping", packed, open_data(packed.recipe), [SIZE])
    assert other["parameters"] == {} and other["targets"] == row["targets"]
    assert abs(other["loss_nats"] - row["loss_nats"]) > 1e-4


@torch.no_grad()
def test_the_loss_of_masked_tokens_is_that_of_each_document_alone(text_recipe, measure):
    """With its end token, and without that of the document before."""
    task, source = opened(text_recipe("encoder", "many", *SEPARATE))
    draw_large_weights(task.model, 0)
    (row,) = measure("nonoverlapping", task, source, [SIZE])
    text, losses = source.dataset("valid", length=SIZE)[0], []
    for first, last in documents_of(source):
        tokens, targets = (text[name][None, first : last + 1] for name in ("tokens", "targets"))
        if tokens.numel():
            losses.append(F.cross_entropy(task.model(tokens)[0], targets[0], reduction="sum"))
    assert len(losses) > 3 and row["tokens"] == (text["targets"] >= 0).sum()
    assert row["loss_nats"] == pytest.approx(sum(losses).item() / row["tokens"], rel=1e-5)


@torch.no_grad()
def test_the_context_of_a_target_is_within_its_document(text_recipe, measure):
    task, source = opened(text_recipe("decoder", "many", *SEPARATE))
    rows = measure("per_position", task, source, [SIZE])
    longest = max(last - first + 1 for first, last in documents_of(source))
    assert all("loss_nats" in row for row in rows) and rows[-1]["length"] < 2 * longest < SIZE


@torch.no_grad()
def test_a_window_may_be_longer_than_the_encoding_if_each_document_fits(text_recipe, measure):
    _, source = opened(text_recipe("decoder", "many", *SEPARATE))
    # The end token of a document opens the next one.
    longest = max(last - max(0, first - 1) for first, last in documents_of(source) if first <= SIZE)

    def row_of(rows, *more):
        table = f"model.encoding={{name: learned, table_length: {rows}}}"
        task, source = opened(text_recipe("decoder", "many", *SEPARATE, table, *more))
        return measure("nonoverlapping", task, source, [SIZE])[0]

    assert row_of(longest)["tokens"] == SIZE
    assert row_of(longest - 1)["note"] == f"the encoding ends at {longest - 1} tokens"
    assert row_of(longest, "data.packing=packed")["note"] == f"the encoding ends at {longest} tokens"


def test_separate_documents_need_a_token_that_closes_them(text_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(token_cache, "_build", None)  # refused before the text is read
    tokenizer = Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=r"data\.packing: separate documents need"):
        open_data(
            text_recipe("decoder", "many", SEPARATE[0], f"data.tokenizer={tmp_path / 'tokenizer.json'}")
        )
