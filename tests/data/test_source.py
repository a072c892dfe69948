"""From a recipe to batches."""

import numpy as np
import pytest
import torch

from zoo.data import open_data
from zoo.data.text.tokenizer import TextTokenizer
from zoo.errors import InputError
from zoo.recipe import resolve


def recipe(tmp_path, task="language_modelling", seed=0, accumulate=1, **data):
    text = {"cache": str(tmp_path / "cache"), "vocab_size": 500, "documents": 20, "words": 300}
    return resolve({
        "name": "tiny",
        "seed": seed,
        "task": task,
        "model": {
            "kind": "decoder" if task == "language_modelling" else "encoder",
            "encoding": "none", "d_model": 16, "num_layers": 1, "num_heads": 2,
        },
        "data": {
            **({"name": "max_index"} if task == "max_index" else {"name": "sample", **text}),
            "sequence_length": 32, "batch_size": 8, **data,
        },
        "optimizer": {"lr": 1e-3},
        "trainer": {"max_steps": 1, "accumulate_grad_batches": accumulate},
    })  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("source")


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


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


def test_masked_batches(folder):
    source = open_data(recipe(folder, task="masked_language_modelling"))
    batch = next(iter(source.train_loader()))
    scored = batch["targets"] >= 0
    assert (
        batch["tokens"][scored] == source.tokenizer.mask_token
    ).any() and 0 < scored.sum() < scored.numel() / 2
    assert not (batch["targets"][~scored] != -100).any()


@pytest.mark.parametrize(
    ("task", "workers"),
    [
        ("language_modelling", 2),
        ("masked_language_modelling", 0),
        ("masked_language_modelling", 2),
        ("max_index", 0),
    ],
)
def test_a_resumed_loader_gives_the_batches_that_are_left(folder, task, workers):
    source = open_data(recipe(folder, task=task, workers=workers))
    whole, loader = [], source.train_loader()
    wanted = 10 if task == "max_index" else len(loader) + 4
    while len(whole) < wanted:
        for batch in loader:
            whole.append((batch, loader.state_dict()))
            if len(whole) == wanted:
                break
    for at in (0, wanted // 2, wanted - 5, wanted - 3):
        again = source.train_loader()
        again.load_state_dict(whole[at][1])
        assert same(next(iter(again)), whole[at + 1][0])


def test_every_epoch_hides_other_tokens(folder):
    loader = open_data(recipe(folder, task="masked_language_modelling")).train_loader()
    first, second = (torch.cat([batch["targets"] for batch in loader]) for _ in range(2))
    hidden = [{tuple(row) for row in epoch.tolist()} for epoch in (first, second)]
    # Blocks with next to nothing hidden may agree by chance.
    assert len(hidden[0] & hidden[1]) < len(hidden[0]) / 5


@pytest.mark.parametrize("task", ["language_modelling", "masked_language_modelling"])
def test_two_ranks_together_see_the_batches_of_one(folder, task):
    source = open_data(recipe(folder, task=task))
    alone = iter(source.train_loader())
    ranks = [iter(source.train_loader(rank, 2)) for rank in range(2)]
    for _ in range(3):
        shares = [next(one) for one in ranks]
        together = {name: torch.cat([share[name] for share in shares]) for name in shares[0]}
        assert same(together, next(alone))


def test_accumulation_divides_the_batch(folder):
    whole = next(iter(open_data(recipe(folder)).train_loader()))
    source = open_data(recipe(folder, accumulate=4))
    parts = iter(source.train_loader())
    assert torch.equal(torch.cat([next(parts)["tokens"] for _ in range(4)]), whole["tokens"])


def test_the_seed_changes_the_order_and_not_the_validation_data(folder):
    for task in ("masked_language_modelling", "max_index"):
        one, two = (open_data(recipe(folder, task=task, seed=seed)) for seed in (0, 1))
        assert not same(next(iter(one.train_loader())), next(iter(two.train_loader())))
        assert same(next(iter(one.valid_loader())), next(iter(two.valid_loader())))
        assert one.fingerprint == two.fingerprint


def test_validation_holds_every_target_once(folder):
    source = open_data(recipe(folder))
    targets = torch.cat([b["targets"] for rank in range(3) for b in source.valid_loader(rank, 3)])
    stream = source.stream("valid")
    used = (len(stream) - 1) // 32 * 32
    assert sorted(targets.flatten().tolist()) == sorted(stream[1 : used + 1].tolist())


def test_max_index_batches(folder):
    source = open_data(recipe(folder, task="max_index"))
    assert source.kind == "pointer" and source.vocab_size == 20
    assert source.tokenizer is source.units is None
    batch = next(iter(source.train_loader()))
    assert batch["tokens"].shape == (8, 32) and batch["answer"].shape == (8,)
    assert source.examples("valid", 128, 10)[0]["tokens"].shape == (128,)
    source.save_tokenizer(folder)


def test_tokenizer_is_saved(folder, tmp_path):
    source = open_data(recipe(folder))
    source.save_tokenizer(tmp_path)
    assert TextTokenizer.load(tmp_path / "tokenizer.json").fingerprint == source.fingerprint["tokenizer"]


def test_units_of_a_split(folder):
    source = open_data(recipe(folder))
    tokens = source.stream("valid")[:].astype(np.int64)
    previous = np.append(source.tokenizer.end_token, tokens[:-1])
    text = source.tokenizer.decode(tokens).replace("<|endoftext|>", "")
    assert source.units.bytes_of(tokens).sum() == len(text.encode())
    assert source.units.words_of(tokens, previous).sum() == len(text.split())


def test_a_batch_larger_than_the_data(folder):
    with pytest.raises(InputError, match=r"data\.batch_size: .*one batch wants 100000"):
        open_data(recipe(folder, batch_size=100_000)).train_loader()
