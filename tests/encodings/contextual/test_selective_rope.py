"""Selective RoPE against a loop over its formula and, with steps of one, RoPE."""

from dataclasses import replace

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.contextual.selective_rope import SelectiveRoPE
from zoo.encodings.rotary.rope import RoPE
from zoo.models.cache import LayerCache

B, H, T, D = 2, 6, 13, 8
E, P = H * D, D // 2
POS = torch.arange(T)


@pytest.fixture
def with_large_weights(size_of):
    def with_large_weights(**options):
        encoding = SelectiveRoPE(size_of(), **options)
        for parameter in encoding.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return encoding.requires_grad_(False)

    return with_large_weights


def turned_by_a_loop(encoding, v, x, keep, base):
    """v [B,H,T,D] in float64, a token at a time, its pairs as complex numbers."""
    down, up, taps = (p.double() for p in (encoding.down, encoding.up, encoding.taps[:, 0]))
    kernel, out = taps.shape[1], []
    frequency = base ** (-2 * torch.arange(P).double() / D)
    for b in range(B):
        parts = [[part / part.norm() for part in x[b, t].double().view(H, D)] for t in range(T)]
        low = [up @ (down @ torch.cat(part)) for part in parts]
        total = torch.zeros(H, P, dtype=torch.double)
        for t in range(T):
            for back in range(min(kernel, t + 1) if keep[b, t] else 0):
                total += (keep[b, t - back] * taps[:, kernel - 1 - back] * low[t - back]).view(H, P)
            turn = torch.polar(torch.ones_like(total), total * frequency)
            pairs = torch.complex(*v[b, :, t].double().chunk(2, -1)) * turn
            out.append(torch.cat((pairs.real, pairs.imag), -1))
    return torch.stack(out).unflatten(0, (B, T)).transpose(1, 2)


@pytest.mark.parametrize("padded", [range(0), range(4), range(6, 8)], ids=["whole", "before", "between"])
@pytest.mark.parametrize("options", [{}, {"base": 100.0, "rank": 5, "kernel": 2}], ids=["default", "others"])
def test_a_loop_over_the_formula(options, padded, with_large_weights, agree):
    encoding, x = with_large_weights(**options), torch.randn(B, T, E)
    q, k = torch.randn(2, B, H, T, D)
    keep = torch.ones(B, T, dtype=torch.bool)
    keep[1, list(padded)] = False
    context = AttentionContext(POS, POS, keep=keep if padded else None, features=encoding.read(x))
    for got, v in zip(encoding.rotate(q, k, context), (q, k), strict=True):
        expected = turned_by_a_loop(encoding, v, x, keep, options.get("base", 500_000.0))
        agree(
            got.double(), expected, encoding="selective_rope", against="formula: a token at a time, by a loop"
        )


def test_steps_of_one_are_rope(with_large_weights, size_of, agree):
    encoding, x = with_large_weights(kernel=1), torch.ones(1, T, E)
    encoding.taps.fill_(1)
    # The first row of `down` reads the same from each token; `up` makes it a step of one.
    encoding.up.zero_()[:, 0] = 1 / encoding.read(x)[0, 0, 0]
    q, k = torch.randn(2, 1, H, T, D)
    got = encoding.rotate(q, k, AttentionContext(POS, POS, features=encoding.read(x)))
    expected = RoPE(size_of(), base=500_000.0).rotate(q, k, AttentionContext(POS + 1, POS + 1))
    for one, other in zip(got, expected, strict=True):
        agree(one, other, encoding="selective_rope", against="identity: steps of one are rope")


def test_a_step_of_decoding_reads_no_token_that_the_convolution_does_not_see(with_large_weights):
    encoding = with_large_weights(kernel=4)
    q, k = torch.randn(2, B, H, T, D)
    context = AttentionContext(POS, POS, features=encoding.read(torch.randn(B, T, E)))
    whole, kept = encoding.rotate(q, k, context), LayerCache()
    for start, stop in ((0, 6), (6, 7), (7, T)):
        part = replace(context.queries(start, stop), layer_cache=kept)
        part.features[:, : max(0, start - 3)] = torch.nan
        k[:, :, :start] = torch.nan
        with torch.no_grad():
            one, other = encoding.rotate(q[:, :, start:stop], k[:, :, :stop], part)
        torch.testing.assert_close(one, whole[0][:, :, start:stop], rtol=0, atol=1e-5)
        torch.testing.assert_close(other, whole[1][:, :, :stop], rtol=0, atol=1e-5)


def test_it_starts_as_published(size_of):
    """The authors' model draws every weight again after its layers are made, the taps' too."""
    for weight in SelectiveRoPE(size_of(d_model=192)).parameters():
        assert weight.std().item() == pytest.approx(0.02, rel=0.2)
