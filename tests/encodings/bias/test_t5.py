"""T5's buckets and bias against those of `transformers` and `x_transformers`."""

import pytest
import torch

from zoo.encodings.bias.t5 import T5Bias
from zoo.encodings.context import AttentionContext


@pytest.mark.parametrize("causal", [True, False])
def test_buckets_are_those_of_t5(causal, size_of, agree):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    for num_buckets, max_distance in ((32, 128), (16, 40), (8, 1000), (64, 256)):
        encoding = T5Bias(size_of(causal=causal), num_buckets=num_buckets, max_distance=max_distance)
        back = torch.arange(-3000, 3001)
        expected = t5.T5Attention._relative_position_bucket(-back, not causal, num_buckets, max_distance)
        against = "transformers T5Attention._relative_position_bucket"
        agree(encoding.bucket(back), expected, encoding="t5", against=against, atol=0)


@pytest.mark.parametrize(("causal", "past"), [(True, 150), (False, 0)], ids=["decoder", "encoder"])
def test_bias_is_that_of_t5(causal, past, size_of, agree):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    encoding = T5Bias(size_of(causal=causal), gain=1)
    config = t5.T5Config(d_model=48, d_kv=8, num_heads=6, is_decoder=causal)
    theirs = t5.T5Attention(config, has_relative_attention_bias=True)
    with torch.no_grad():
        theirs.relative_attention_bias.weight.copy_(encoding.table)
    pos = torch.arange(200)
    actual = encoding.bias_table(AttentionContext(pos[past:], pos, past, causal, consecutive=True), 6)
    expected = theirs.compute_bias(200 - past, 200, past_seen_tokens=past)[0]
    agree(actual, expected, encoding="t5", against="transformers T5Attention.compute_bias")


@pytest.mark.parametrize("causal", [True, False], ids=["decoder", "encoder"])
def test_bias_is_that_of_x_transformers(causal, size_of, agree):
    package = pytest.importorskip("x_transformers.x_transformers")
    encoding = T5Bias(size_of(causal=causal))
    theirs = package.RelativePositionBias(scale=encoding.size.head_dim**0.5, causal=causal, heads=6)
    with torch.no_grad():
        theirs.relative_attention_bias.weight.copy_(encoding.table)
    pos = torch.arange(200)
    actual = encoding.bias_table(AttentionContext(pos, pos, causal=causal, consecutive=True), 6)
    agree(actual, theirs(200, 200), encoding="t5", against="x_transformers RelativePositionBias")


def test_the_bias_starts_alike_at_every_gain(size_of):
    pos = torch.arange(40)
    context = AttentionContext(pos, pos, consecutive=True)
    tables = []
    for gain in (None, 1.0, 8.0):
        torch.manual_seed(0)
        tables.append(T5Bias(size_of(), gain=gain).bias_table(context, 6))
    torch.testing.assert_close(tables[0], tables[1])
    torch.testing.assert_close(tables[0], tables[2])
