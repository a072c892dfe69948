"""ALiBi against the formula of the paper, against BLOOM's slopes, and its forms for encoders."""

import pytest
import torch

from zoo.encodings.alibi import ALiBi, geometric_slopes, official_slopes
from zoo.encodings.base import Span
from zoo.errors import InputError

# From the authors' own function, as printed for 12 heads.
TWELVE = [2.0**-e for e in (1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5)]


@pytest.mark.parametrize("heads", [4, 8, 12, 16])
def test_slopes_are_those_of_bloom(heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    ramp = bloom.build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)
    torch.testing.assert_close(torch.tensor(official_slopes(heads)), ramp[:, 0, 1], rtol=1e-6, atol=0)


def test_the_official_slopes_of_twelve_heads():
    assert official_slopes(12) == TWELVE


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16, 32])
def test_both_conventions_are_one_where_heads_are_a_power_of_two(heads):
    slopes = []
    for h in range(heads):
        slopes.append(1.0)
        for _ in range(h + 1):
            slopes[-1] *= 2 ** (-8 / heads)
    assert official_slopes(heads) == pytest.approx(slopes)
    assert geometric_slopes(heads) == pytest.approx(slopes)


def test_they_differ_where_it_is_not():
    assert geometric_slopes(12) == pytest.approx([2 ** (-2 * h / 3) for h in range(1, 13)])
    assert sorted(official_slopes(12)) != pytest.approx(sorted(geometric_slopes(12)))


@pytest.mark.parametrize("heads", range(1, 20))
def test_every_head_has_a_slope_of_its_own(heads):
    for rule in (official_slopes, geometric_slopes):
        assert len(set(rule(heads))) == heads


@pytest.mark.parametrize("causal", [True, False])
def test_bias_is_slope_times_distance(causal, size_of):
    heads, length = 12, 9
    encoding = ALiBi(size_of(num_heads=heads, causal=causal))
    bias = encoding.bias_table(Span(torch.arange(length), torch.arange(length), causal=causal), heads)
    for h in range(heads):
        for i in range(length):
            for j in range(length):
                assert bias[h, i, j] == pytest.approx(-TWELVE[h] * abs(i - j))


def test_one_sided_heads_of_an_encoder_look_one_way_each(size_of):
    heads, length = 12, 9
    encoding = ALiBi(size_of(num_heads=heads, causal=False), form="one_sided")
    bias = encoding.bias_table(Span(torch.arange(length), torch.arange(length), causal=False), heads)
    back, forward = bias[:, 5, 2], bias[:, 2, 5]
    assert back.isfinite().sum() == forward.isfinite().sum() == heads // 2
    assert (back.isfinite() ^ forward.isfinite()).all()
    for side in (back, forward):
        # Each half of the heads has the slopes of a model with half as many.
        assert sorted(-side[side.isfinite()] / 3) == pytest.approx(sorted(official_slopes(heads // 2)))
    assert (bias.diagonal(dim1=1, dim2=2) == 0).all()


def test_one_sided_tells_an_encoder_left_from_right(model_of, tokens):
    """A symmetric bias gives a reversed sequence the reversed outputs; so it cannot say which came first."""
    row = tokens(1, 10)
    for form, knows in (("symmetric", False), ("one_sided", True)):
        model = model_of({"name": "alibi", "form": form}, "encoder")
        difference = (model(row.flip(1)).flip(1) - model(row)).abs().max()
        assert (difference > 1e-2) if knows else (difference < 1e-5)


def test_in_a_decoder_the_form_changes_nothing(model_of, tokens):
    one_sided = model_of({"name": "alibi", "form": "one_sided"})
    assert torch.equal(one_sided(tokens(2, 10)), model_of("alibi")(tokens(2, 10)))


def test_one_sided_needs_two_halves(model_of):
    with pytest.raises(InputError, match=r"encoding 'alibi': form one_sided .* 3 is odd"):
        model_of({"name": "alibi", "form": "one_sided"}, "encoder", num_heads=3)
