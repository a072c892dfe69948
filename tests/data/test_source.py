"""From a recipe to batches."""

import pytest
import torch
from tiny_recipes import tiny

from zoo.data import open_data


def recipe(tmp_path, task="language_modelling", seed=0, accumulate=1, **data):
    text = {"cache": str(tmp_path / "cache"), "vocab_size": 500, "documents": 20, "words": 300}
    name = {"name": "max_index"} if task == "max_index" else {"name": "sample", **text}
    kind = "decoder" if task == "language_modelling" else "encoder"
    sets = f"task={task}", f"seed={seed}", f"trainer.accumulate_grad_batches={accumulate}"
    return tiny({**name, "sequence_length": 32, "batch_size": 8, **data}, *sets, kind=kind)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("source")


def test_text_batches(folder):
    source = open_data(recipe(folder))
    assert source.kind == "text" and source.vocab_size == 500
    assert source.tokenizer.mask_token is not None
    assert all(len(source.fingerprint[name]) == 64 for name in ("corpus", "tokenizer"))
    for loader in (source.train_loader(), source.valid_loader()):
        batch = next(iter(loader))
        assert batch["tokens"].shape == batch["targets"].shape == (8, 32)
        assert torch.equal(batch["tokens"][:, 1:], batch["targets"][:, :-1])
    assert len(source.train_loader()) == (len(source.stream("train")) - 1) // 32 // 8


def test_every_epoch_hides_other_tokens(folder):
    loader = open_data(recipe(folder, task="masked_language_modelling")).train_loader()
    first, second = (torch.cat([batch["targets"] for batch in loader]) for _ in range(2))
    hidden = [{tuple(row) for row in epoch.tolist()} for epoch in (first, second)]
    # Blocks with next to nothing hidden may agree by chance.
    assert len(hidden[0] & hidden[1]) < len(hidden[0]) / 5
