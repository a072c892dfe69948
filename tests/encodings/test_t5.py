"""T5's buckets against those of `transformers`, and what they mean."""

import pytest
import torch

from zoo.encodings.base import Span
from zoo.encodings.t5 import T5Bias
from zoo.errors import InputError


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (16, 40), (8, 1000), (64, 256)])
def test_buckets_are_those_of_t5(causal, num_buckets, max_distance, size_of):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    encoding = T5Bias(size_of(causal=causal), num_buckets=num_buckets, max_distance=max_distance)
    back = torch.arange(-3000, 3001)
    expected = t5.T5Attention._relative_position_bucket(-back, not causal, num_buckets, max_distance)
    assert torch.equal(encoding.bucket(back), expected)


@pytest.mark.parametrize("causal", [True, False])
def test_near_distances_are_told_apart_and_far_ones_share(causal, size_of):
    encoding = T5Bias(size_of(causal=causal))
    bucket = encoding.bucket(torch.arange(10_000))
    one_way = 32 if causal else 16
    assert bucket[: one_way // 2].tolist() == list(range(one_way // 2))
    assert (bucket.diff() >= 0).all()
    assert (bucket[128:] == one_way - 1).all()
    if not causal:
        # The other direction has buckets of its own.
        assert set(bucket.tolist()) & set(encoding.bucket(-torch.arange(1, 10_000)).tolist()) == set()


def test_bias_is_a_row_of_the_table(size_of):
    encoding = T5Bias(size_of(causal=False))
    bias = encoding.bias_table(Span(torch.arange(20), torch.arange(20), causal=False), 6)
    for i, j in ((0, 0), (19, 0), (0, 19), (7, 3)):
        row = int(encoding.bucket(torch.tensor(i - j)))
        assert torch.equal(bias[:, i, j], encoding.table[row])


def test_one_table_serves_all_layers(model_of):
    model = model_of("t5", num_layers=3)
    assert [name for name, _ in model.named_parameters() if "encoding" in name] == [
        "encoding.slots.0.0.table"
    ]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"num_buckets": 1}, "decoder", "num_buckets must be even and leave two"),
        ({"num_buckets": 2}, "encoder", "num_buckets must be even and leave two"),
        ({"num_buckets": 9}, "encoder", "num_buckets must be even"),
        ({"max_distance": 16}, "decoder", "max_distance must be above 16"),
    ],
)
def test_options_that_cannot_be(options, kind, message, model_of):
    with pytest.raises(InputError, match=message):
        model_of({"name": "t5", **options}, kind)
