"""RePo against a loop over its formula and, in the layers before, RoPE."""

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.contextual.repo import RePo
from zoo.encodings.rotary.rope import RoPE
from zoo.encodings.stack import EncodingStack

B, H, T, D = 2, 6, 11, 8
E, P = H * D, D // 2
POS = torch.arange(T)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_a_loop_over_the_formula(layout, size_of, agree):
    encoding = RePo(size_of(layer=1, num_layers=3), layout=layout).requires_grad_(False)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x, q_and_k = torch.randn(B, T, E), torch.randn(2, B, H, T, D)
    gate, content, assign = (
        one.weight.double() for one in (encoding.gate, encoding.content, encoding.assign)
    )
    frequency = 10000 ** (-2 * torch.arange(P).double() / D)
    expected = torch.empty(2, B, H, T, D, dtype=torch.double)
    for b, t in torch.cartesian_prod(torch.arange(B), torch.arange(T)).tolist():
        gated = gate @ x[b, t].double()
        position_H1 = (assign @ (gated / (1 + (-gated).exp()) * (content @ x[b, t].double())))[:, None]
        v = q_and_k[:, b, :, t].double()
        pairs = v.unflatten(-1, (2, P)).mT if layout == "half" else v.unflatten(-1, (P, 2))
        pairs = torch.view_as_complex(pairs.contiguous()) * torch.exp(1j * position_H1 * frequency)
        turned = torch.view_as_real(pairs)
        expected[:, b, :, t] = (turned.mT if layout == "half" else turned).flatten(-2)
    (q, k), context = q_and_k, AttentionContext(POS, POS, features=encoding.read(x))
    for first in (0, 7):
        got = encoding.rotate(q[:, :, first:], k, context.queries(first, T))
        for one, other in zip(got, (expected[0][:, :, first:], expected[1]), strict=True):
            agree(one.double(), other, encoding="repo", against="formula: a token at a time, by a loop")


def test_the_first_layers_are_rope(size_of, agree):
    size = size_of(num_layers=16)
    for spec, count in (("repo", 5), ({"name": "repo", "start": 2}, 2)):
        layers = EncodingStack(spec, size).slots[0]
        assert [one.uses("read") for one in layers] == [False] * count + [True] * (16 - count)
        q, k = torch.randn(2, 1, H, T, D)
        got, wanted = (
            one.rotate(q, k, AttentionContext(POS, POS)) for one in (layers[count - 1], RoPE(size))
        )
        for one, other in zip(got, wanted, strict=True):
            agree(one, other, encoding="repo", against="identity: rope before `start`")


def test_it_starts_as_published(size_of):
    for weight in RePo(size_of(d_model=192, layer=1)).parameters():
        assert weight.std().item() == pytest.approx(0.02, rel=0.2) and weight.abs().max() <= 0.06
