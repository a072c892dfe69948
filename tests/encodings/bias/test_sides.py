"""Heads that look to one side, of every encoding with such a form."""

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import build_encoding
from zoo.errors import InputError

NAMES = pytest.mark.parametrize("name", ["alibi", "kerple", "sandwich"])


@NAMES
@pytest.mark.parametrize("consecutive", [True, False])
def test_half_of_the_heads_look_back_and_half_ahead(name, consecutive, size_of):
    pos, heads = torch.arange(9), 12
    encoding = build_encoding({"name": name, "form": "one_sided"}, size_of(num_heads=heads, causal=False))
    context = AttentionContext(pos, pos, causal=False, consecutive=consecutive)
    bias = encoding.bias_table(context, heads)
    i, j = pos[:, None], pos
    assert torch.equal(bias[0::2].isfinite(), (j <= i).expand(6, -1, -1))
    assert torch.equal(bias[1::2].isfinite(), (j >= i).expand(6, -1, -1))
    if name != "kerple":  # whose strengths are drawn for each head
        # Each half of the heads has the strengths of a model with half as many.
        half = build_encoding(name, size_of(num_heads=heads // 2, causal=False)).bias_table(context, 6)
        torch.testing.assert_close(bias[0::2].tril(), half.tril())
        torch.testing.assert_close(bias[1::2].triu(), half.triu())


@NAMES
def test_one_sided_tells_an_encoder_left_from_right(name, model_of, tokens):
    """A symmetric bias gives a reversed sequence the reversed outputs; so it cannot say which came first."""
    row = tokens(1, 10)
    for form, knows in (("symmetric", False), ("one_sided", True)):
        model = model_of({"name": name, "form": form}, "encoder")
        difference = (model(row.flip(1)).flip(1) - model(row)).abs().max()
        assert (difference > 1e-2) if knows else (difference < 1e-5)


@NAMES
def test_in_a_decoder_the_form_changes_nothing(name, model_of, tokens):
    one_sided = model_of({"name": name, "form": "one_sided"})
    assert torch.equal(one_sided(tokens(2, 10)), model_of(name)(tokens(2, 10)))


@NAMES
def test_one_sided_needs_two_halves(name, model_of):
    with pytest.raises(InputError, match=f"encoding '{name}': form one_sided .* 3 is odd"):
        model_of({"name": name, "form": "one_sided"}, "encoder", num_heads=3)
