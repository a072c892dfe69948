"""The logit without a value against `transformers`, a loop, and a key of zeros."""

from types import SimpleNamespace

import pytest
import torch
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import LayerEncodings
from zoo.encodings.weights.sink import Sink
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms

B, H, T, D = 2, 6, 13, 8


@pytest.fixture
def sink(size_of):
    encoding = Sink(size_of())
    torch.nn.init.normal_(encoding.s)
    return encoding


def terms(encoding, **context):
    pos = torch.arange(T)
    return ScoreTerms(LayerEncodings([encoding]), [AttentionContext(pos, pos, **context)])


@torch.no_grad()
def test_transformers(sink, agree):
    q, k, v = torch.randn(3, B, H, T, D)
    mask = torch.full((T, T), -torch.inf).triu(1)
    layer = SimpleNamespace(num_key_value_groups=1, sinks=sink.s, training=False)
    expected, _ = eager_attention_forward(layer, q, k, v, mask, D**-0.5)
    got = attend(q, k, v, terms(sink), D**-0.5).transpose(1, 2)
    agree(got, expected, encoding="sink", against="transformers gpt_oss eager_attention_forward")


def test_a_loop_over_the_formula(sink, agree):
    """Every query has the sink, under a window too."""
    q, k, v = torch.randn(3, B, H, T, D)
    expected = torch.zeros(B, H, T, D, dtype=torch.float64)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, (B, H, T))).tolist():
        seen = slice(max(0, i - 3), i + 1)
        e = (k[b, h, seen].double() @ q[b, h, i].double() / D**0.5).exp()
        expected[b, h, i] = e @ v[b, h, seen].double() / (e.sum() + sink.s[h].double().exp())
    got = attend(q, k, v, terms(sink, window=4), D**-0.5)
    agree(got, expected.float(), encoding="sink", against="a loop over the formula")


def test_a_fixed_sink_is_the_softmax_off_by_one(size_of, agree):
    """As many keys of zeros, whose values are zeros too, as queries see: one."""
    fixed = Sink(size_of(), learned=False)
    assert not [*fixed.parameters()] and not fixed.per_layer
    q, k, v = torch.randn(3, B, H, 1, D).expand(-1, -1, -1, T, -1)
    k, v = (torch.cat((torch.zeros_like(x[:, :, :1]), x), 2) for x in (k, v))
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    got = attend(q, k[:, :, 1:], v[:, :, 1:], terms(fixed, causal=False), D**-0.5)
    agree(got, plain, encoding="sink", against="softmax with a key of zeros, fixed")
