"""`model.attention` and `model.encoding.bias_table` equal the weights and the bias that the model uses."""

import pytest
import torch

from zoo.errors import InputError

# Of each hook, and of several.
NAMES = ["learned", "rope", "alibi", "t5", "cope", "shaw", "fox", "transformer_xl", "path", "dape", "rerope"]


def watched(model, row, keep=None):
    """The weights; of each layer what its attention was given, and what went into its last matrix."""
    given, mixed = [], []
    for block in model.blocks:
        block.attention.register_forward_pre_hook(lambda module, args: given.append(args))
        block.attention.out.register_forward_pre_hook(lambda module, args: mixed.append(args[0]))
    return model.attention(row, keep), given, mixed


@pytest.mark.parametrize("name", NAMES)
def test_weights_times_values_are_the_output_of_the_layer(name, model_of, spec_of, tokens):
    """As one table, and by blocks of queries."""
    model, row = model_of(spec_of(name)), tokens(2, 13)
    before = model(row)
    weights, given, mixed = watched(model, row)
    assert weights.shape == (2, 2, 6, 13, 13) and not weights.requires_grad
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 6, 13), rtol=0, atol=1e-6)
    assert not weights.triu(1).any()
    with torch.no_grad():
        for layer, block in enumerate(model.blocks):
            _, _, values, scores = block.attention._project(*given[layer][:3], None)
            out = weights[layer] @ values
            extra = scores.value(weights[layer])
            out = out if extra is None else out + extra
            torch.testing.assert_close(out.transpose(1, 2).flatten(2), mixed[layer], rtol=0, atol=1e-5)
            for context, part in block.attention.weight_blocks(*given[layer][:3], rows=5):
                expected = weights[layer][
                    :, :, context.query_offset : context.query_offset + context.num_queries
                ]
                torch.testing.assert_close(part, expected[..., : context.num_keys], rtol=0, atol=1e-6)
                assert not expected[..., context.num_keys :].any()
    assert torch.equal(model(row), before)


def test_padding_windows_and_shared_keys(model_of, tokens):
    model = model_of("rope", num_kv_heads=2, window=[4, None], logit_scale="log_n", qk_norm=True)
    keep = torch.ones(2, 13, dtype=torch.bool)
    keep[1, :3] = False
    weights, _, _ = watched(model, tokens(2, 13), keep)
    distance = torch.arange(13)[:, None] - torch.arange(13)
    assert not weights[0][..., distance >= 4].any() and weights[1][0, :, 12, 0].all()
    assert not weights[:, 1, :, :, :3].any()
    assert torch.allclose(weights[:, 1, :, 3:].sum(-1), torch.ones(()))
    assert not weights[:, 1, :, :3].any()


def test_the_table_of_a_bias_is_added_to_the_scores(model_of, spec_of, tokens):
    for name in ("alibi", "t5", "kerple", "fire", "sandwich", "dpb", "cape", "interleave"):
        model = model_of(spec_of(name))
        bias = model.encoding.bias_table(9, layer=1)
        assert bias.shape == (6, 9, 9) and bias.dtype == torch.float32 and bias.any(), name
        assert torch.allclose(model.encoding.bias_table(2, 9, layer=1), bias[:, -2:], atol=1e-6), name
        weights, given, _ = watched(model, tokens(1, 9))
        with torch.no_grad():
            query, key, _, _ = model.blocks[1].attention._project(*given[1][:3], None)
        logits = (query @ key.mT * 8**-0.5 + bias).masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
        torch.testing.assert_close(weights[1], logits.softmax(-1), rtol=0, atol=1e-5)


def test_a_table_that_does_not_exist_is_an_error(model_of):
    learned, alibi = model_of("learned").encoding, model_of("alibi").encoding
    for table, message in (
        (lambda: alibi.bias_table(0), "^0 queries of 0 keys"),
        (lambda: alibi.bias_table(5, 4), "^5 queries of 4 keys"),
        (lambda: alibi.bias_table(4, layer=2), "^no layer 2: this model has layers 0 to 1"),
        (lambda: learned.bias_table(4), "^learned adds no bias"),
    ):
        with pytest.raises(InputError, match=message):
            table()
