"""PoPE against x-transformers and a loop over the formula."""

import math

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.pope import PoPE
from zoo.encodings.stack import LayerEncodings
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms

B, D, H, T = 2, 10, 3, 11
POS = torch.arange(T)


@pytest.fixture
def pope(size_of):
    def pope(**options):
        encoding = PoPE(size_of(d_model=H * D, num_heads=H), **options)
        with torch.no_grad():
            # Beyond both ends of where delta stays.
            encoding.delta.uniform_(-3 * math.pi, math.pi)
        return encoding

    return pope


def heads(dtype=torch.float32):
    return torch.randn(2, B, H, T, D, dtype=dtype)


def softplus(x):
    return math.log1p(math.exp(x))


@pytest.mark.parametrize("base", [500.0])
def test_x_transformers(base, pope, agree):
    x_transformers = pytest.importorskip("x_transformers.x_transformers")
    encoding, theirs = pope(base=base), x_transformers.PolarEmbedding(D, H, base=base)
    theirs.learned_bias.data = encoding.delta.data[:, None].clone()
    frequencies, bias = theirs(POS)
    q, k = heads()
    expected = [
        x_transformers.apply_polar_pos_emb(q, frequencies),
        x_transformers.apply_polar_pos_emb(k, frequencies + bias),
    ]
    for got, right in zip(encoding.rotate(q, k, AttentionContext(POS, POS)), expected, strict=True):
        assert got.shape == (B, H, T, 2 * D)
        agree(got, right, encoding="pope", against="x_transformers PolarEmbedding")


def test_a_loop_over_the_formula(pope, agree):
    """score_ij = sum_c softplus(q_ic) softplus(k_jc) cos((i - j) f_c - delta_c), softmax and values after."""
    encoding = pope()
    (q, k), v = heads(), torch.randn(B, H, T, D)
    expected = torch.zeros(B, H, T, D)
    for b in range(B):
        for h in range(H):
            for i in range(T):
                logits = torch.zeros(i + 1, dtype=torch.float64)
                for j in range(i + 1):
                    for c in range(D):
                        delta = min(0.0, max(-2 * math.pi, encoding.delta[h, c].item()))
                        angle = (i - j) * 10000 ** (-c / D) - delta
                        length = softplus(q[b, h, i, c].item()) * softplus(k[b, h, j, c].item())
                        logits[j] += length * math.cos(angle) / math.sqrt(D)
                weights = logits.exp() / logits.exp().sum()
                expected[b, h, i] = (weights[:, None] * v[b, h, : i + 1]).sum(0)
    context = AttentionContext(POS, POS)
    with torch.no_grad():
        q, k = encoding.rotate(q, k, context)
        got = attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [context]), D**-0.5)
    agree(got, expected.float(), encoding="pope", against="a loop over the formula")


def test_the_initial_values_of_delta(size_of):
    assert not PoPE(size_of()).delta.any()
    uniform = PoPE(size_of(), delta="uniform").delta
    assert (-2 * math.pi <= uniform).all()
    assert (uniform <= 0).all()
    assert uniform.std() > 1


def test_fewer_key_heads_share_their_content_and_not_delta(model_of, tokens):
    model = model_of("pope", num_kv_heads=2)
    before = model(tokens(1, 9))
    with torch.no_grad():
        model.encoding.slots[0][0].delta[1].fill_(-3.0)
    assert (model(tokens(1, 9)) - before).abs().max() > 1e-3
