"""`data.lengths`: steps of several lengths, on the same tokens in the same order, and resumable."""

import pytest
import torch

from zoo.data import open_data
from zoo.errors import InputError

LENGTHS = "data.lengths=[4, 8, 16]"


def batches(recipe, count, **ranks):
    loader = open_data(recipe).train_loader(**ranks)
    return [batch for batch, _ in zip(loader, range(count), strict=False)]


@pytest.mark.parametrize("kind", ["text", "masked"])
def test_the_tokens_are_those_of_whole_sequences(recipe, kind):
    whole, mixed = batches(recipe(kind), 12), batches(recipe(kind, LENGTHS), 12)
    for one, two in zip(whole, mixed, strict=True):
        for name in one:
            assert torch.equal(one[name].flatten(), two[name].flatten())
    assert {batch["tokens"].shape[1] for batch in mixed} == {4, 8, 16}
    other = batches(recipe(kind, LENGTHS, "seed=1"), 12)
    assert [one["tokens"].shape for one in mixed] != [one["tokens"].shape for one in other]


def test_all_parts_of_a_step_have_one_length(recipe):
    changes = "text", LENGTHS, "trainer.accumulate_grad_batches=2"
    once = [batch["tokens"].shape[1] for batch in batches(recipe("text", LENGTHS), 6)]
    for rank in (0, 1):
        parts = [batch["tokens"].shape[1] for batch in batches(recipe(*changes), 12, rank=rank, world_size=2)]
        assert parts == [length for length in once for _ in range(2)]


def test_a_length_that_does_not_divide_is_reported(recipe):
    with pytest.raises(InputError, match=r"data\.lengths: 5 does not divide data\.sequence_length=16"):
        open_data(recipe("text", "data.lengths=[5]"))
