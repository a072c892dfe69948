"""FoPE against a loop over the formula."""

import math

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.fope import FoPE

D, H, T, LENGTH = 16, 2, 11, 40
POS = torch.arange(T)


@pytest.fixture
def size(size_of):
    return size_of(d_model=H * D, num_heads=H, length=LENGTH)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("pos", [POS, torch.stack((POS, 3 * POS + 50))], ids=["rows", "positions"])
def test_a_loop_over_the_formula(layout, pos, size, agree):
    encoding = FoPE(size, layout=layout, gain=2.0)
    q, k = torch.randn(2, 2, H, T, D)
    frequency = [10000 ** (-2 * m / D) for m in range(D // 2)]
    turning = [f for f in frequency if f >= 2 * math.pi / LENGTH]
    a, b = (part - torch.eye(len(turning)) for part in encoding.mixing.double())
    expected = [q.clone(), k.clone()]
    for x, out in zip((q, k), expected, strict=True):
        for s, h, t in torch.cartesian_prod(*(torch.arange(n) for n in (2, H, T))).tolist():
            p = int(pos[s, t] if pos.dim() == 2 else pos[t])
            for m, f in enumerate(turning):
                c = math.cos(p * f) + sum(a[h, n, m] * math.cos(p * g) for n, g in enumerate(turning))
                d = math.sin(p * f) + sum(b[h, n, m] * math.sin(p * g) for n, g in enumerate(turning))
                one, other = (m, m + D // 2) if layout == "half" else (2 * m, 2 * m + 1)
                u, v = x[s, h, t, one].item(), x[s, h, t, other].item()
                out[s, h, t, one], out[s, h, t, other] = u * c - v * d, v * c + u * d
    for got, wanted in zip(encoding.rotate(q, k, AttentionContext(pos, pos)), expected, strict=True):
        agree(got, wanted, encoding="fope", against="a loop over the formula")


def test_pairs_without_a_full_turn_in_training_stay(size_of):
    q, k = torch.randn(2, 1, H, T, D)
    for length, turning in ((6, 0), (7, 1), (40, 2), (100_000, 8)):
        encoding = FoPE(size_of(d_model=H * D, num_heads=H, length=length), layout="interleaved")
        assert len(encoding.frequency) == turning
        # A context is of one forward pass: it keeps angles by the encoding's id.
        turned = encoding.rotate(q, k, AttentionContext(POS, POS))[0]
        assert torch.equal(turned[..., 2 * turning :], q[..., 2 * turning :])
        assert (turned[..., : 2 * turning] != q[..., : 2 * turning]).all()


def test_the_size_of_the_coefficients_is_the_published_one(size_of):
    size = size_of(d_model=8 * 64, num_heads=8, length=4096)
    encoding = FoPE(size)
    count = len(encoding.frequency)
    published = torch.nn.init.xavier_normal_(torch.empty(8, count, count), gain=0.3).std()
    for part in encoding.mixing - torch.eye(count):
        assert abs(part.std() / published - 1) < 0.1 and abs(part.mean()) < 0.1 * published


def test_coefficients_differ_by_layer_and_head_and_not_by_seed(size_of):
    def mixing(seed, layer):
        torch.manual_seed(seed)
        return FoPE(size_of(length=100, layer=layer)).mixing

    assert torch.equal(mixing(0, 1), mixing(5, 1)) and not torch.equal(mixing(0, 1), mixing(0, 2))
    cos, sin = mixing(0, 0)
    assert not torch.equal(cos, sin) and not torch.equal(cos[0], cos[1])
