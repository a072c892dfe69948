"""CAPE against a loop over the formula, and the statistics of its draws."""

import math

import pytest
import torch

from zoo.encodings.stack import build_encoding
from zoo.models.cache import Cache

B, T = 4, 12
OPTIONS = {"max_global_shift": 7.0, "max_local_shift": 0.5, "max_scale": 1.5}


def cape(of="sinusoidal", **options):
    return {"name": "cape", "of": of, **options}


def formula(centred):
    """(p_i - mean + D + e_i) s, token by token, from what the same seed draws."""
    shift, scale, jitter = torch.rand(B, 2 + T).split((1, 1, T), 1)
    mean = sum(range(T)) / T if centred else 0
    moved = torch.zeros(B, T)
    for b in range(B):
        s = math.exp((2 * scale[b, 0].item() - 1) * math.log(1.5))
        for i in range(T):
            d, e = 7 * (2 * shift[b, 0].item() - 1), 0.5 * (2 * jitter[b, i].item() - 1)
            moved[b, i] = (i - mean + d + e) * s
    return moved


@pytest.mark.parametrize("centred", [False, True])
def test_positions_are_the_formula(centred, model_of, tokens, size_of, agree):
    spec = cape(**OPTIONS, centred=centred)
    encoding = build_encoding(spec, size_of()).train()
    torch.manual_seed(3)
    got = encoding.positions(torch.arange(T), B)
    torch.manual_seed(3)
    expected = formula(centred)
    agree(got, expected, encoding="cape", against="a loop over the formula")
    # And these are the positions that the wrapped encoding sees.
    model, row = model_of(spec).train(), tokens(B, T)
    torch.manual_seed(3)
    outputs = model(row)
    agree(
        outputs,
        model_of("sinusoidal")(row, positions=expected),
        encoding="cape",
        against="plain encoding at the loop's positions",
        atol=2e-5,
    )


def uniform(values, low, high):
    """Whether values look drawn from U(low, high): bounds, mean, variance and the share of each quarter."""
    count, width = values.numel(), high - low
    assert values.min() >= low - 1e-4 and values.max() <= high + 1e-4
    assert abs(values.mean().item() - (low + high) / 2) < 4 * width / math.sqrt(12 * count)
    assert values.var().item() == pytest.approx(width**2 / 12, rel=0.1)
    for quarter in range(4):
        inside = (values >= low + quarter * width / 4) & (values < low + (quarter + 1) * width / 4)
        assert abs(inside.float().mean().item() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / count)


def test_each_draw_is_uniform_within_its_bounds(size_of):
    many, none = 4000, {"max_global_shift": 0.0, "max_local_shift": 0.0, "max_scale": 1.0}
    ids = torch.arange(1, 9)

    def moved(**options):
        return build_encoding(cape(**{**none, **options}), size_of()).train().positions(ids, many) - 0.0

    shift = moved(max_global_shift=7.0) - ids
    assert (shift - shift[:, :1]).abs().max() < 1e-5
    uniform(shift[:, 0], -7, 7)
    jitter = moved(max_local_shift=0.5) - ids
    uniform(jitter.flatten(), -0.5, 0.5)
    # Drawn for each token: neighbours know nothing of one another.
    assert abs(torch.corrcoef(jitter[:, :2].T)[0, 1].item()) < 4 / math.sqrt(many)
    scale = moved(max_scale=1.5) / ids
    assert (scale - scale[:, :1]).abs().max() < 1e-5
    uniform(scale[:, 0].log(), -math.log(1.5), math.log(1.5))
    assert torch.equal(moved(), ids.expand(many, -1).float())


def test_the_default_jitter_keeps_the_order_of_tokens(size_of):
    got = build_encoding(cape(), size_of()).train().positions(torch.arange(30), 500)
    assert (got.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize("left", [True, False])
def test_the_mean_is_that_of_the_real_tokens(left, size_of, model_of, tokens):
    keep = torch.arange(14)[None] >= 5 if left else torch.arange(14)[None] < 9
    ids = (keep.long().cumsum(1) - 1).clamp(min=0)
    encoding = build_encoding(cape(centred=True), size_of()).eval()
    assert encoding.positions(ids, 1)[keep].tolist() == [i - 4.0 for i in range(9)]
    model, row, rest = model_of(cape(centred=True)), tokens(1, 9), tokens(1, 5)
    padded = model(torch.cat((rest, row) if left else (row, rest), 1), keep)
    torch.testing.assert_close(padded[keep][None], model(row), rtol=0, atol=1e-5)


def test_centred_it_needs_the_full_sequence(model_of, tokens):
    model = model_of(cape(centred=True))
    with pytest.raises(ValueError, match="run it without a cache"):
        model(tokens(1, 4), cache=Cache(model.num_layers))
