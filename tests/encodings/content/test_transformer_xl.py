"""Transformer-XL's positions against a loop over section 3.3, at default positions and at any others."""

import math

import pytest
import torch

from zoo.encodings.content.transformer_xl import TransformerXL
from zoo.encodings.context import AttentionContext

B, H, T, D = 2, 6, 11, 8
E = H * D


@pytest.fixture
def made(size_of):
    def made(causal=True, **options):
        encoding = TransformerXL(size_of(causal=causal), **options)
        for parameter in encoding.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return encoding.requires_grad_(False)

    return made


def equation(encoding, q, k, q_pos, k_pos):
    """Terms b, c and d of A^rel in section 3.3, over sqrt(D)."""
    far = encoding.clamp or math.inf
    score = torch.zeros(B, H, q.shape[2], k.shape[2])
    for b in range(B):
        for i, here in enumerate(q_pos[b].tolist()):
            for j, there in enumerate(k_pos[b].tolist()):
                distance = max(-far, min(far, here - there))
                angles = [distance / 10000 ** (2 * m / E) for m in range(E // 2)]
                r = torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
                key = (encoding.project @ r).view(H, D)
                for h in range(H):
                    u, v = encoding.content_bias[h], encoding.position_bias[h]
                    score[b, h, i, j] = q[b, h, i] @ key[h] + u @ k[b, h, j] + v @ key[h]
    return score / math.sqrt(D)


@pytest.mark.parametrize(
    ("causal", "clamp", "first"), [(True, None, 0), (True, 4, 6), (False, None, 6), (False, 4, 0)]
)
def test_the_equation_of_the_paper(causal, clamp, first, made, agree):
    encoding = made(causal, clamp=clamp)
    q, k = torch.randn(B, H, T - first, D), torch.randn(B, H, T, D)
    pos = torch.arange(T)
    context = AttentionContext(pos[first:], pos, query_offset=first, causal=causal, consecutive=True)
    got = encoding.score(q, k, context)
    expected = equation(encoding, q, k, pos[first:].expand(B, -1), pos.expand(B, -1))
    # Beyond the diagonal of a decoder is what the mask hides.
    seen = context.allowed()
    agree(got * seen, expected * seen, encoding="transformer_xl", against="formula: section 3.3, by a loop")


@pytest.mark.parametrize(("causal", "clamp"), [(True, 4), (False, None)])
def test_the_equation_at_any_positions(causal, clamp, made, agree):
    encoding = made(causal, clamp=clamp)
    q, k = torch.randn(B, H, T, D), torch.randn(B, H, T, D)
    pos = torch.stack((torch.arange(T) * 1.5 + 2**17 + 0.25, torch.rand(T) * 40))
    got = encoding.score(q, k, AttentionContext(pos, pos, causal=causal))
    expected = equation(encoding, q, k, pos, pos)
    agree(got, expected, encoding="transformer_xl", against="formula at positions between whole numbers")
