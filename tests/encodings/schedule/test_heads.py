"""An encoding for each group of heads: group by group against models that have it in all of their heads."""

from dataclasses import replace

import pytest
import torch

from zoo.contract.causality import decoded
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import LayerEncodings, build_encoding
from zoo.errors import InputError
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms

D = 8
# A pair for each hook. Of several that decide how queries and keys are multiplied, each has its own heads.
PAIRS = [
    ["alibi", "none"], ["rope", "alibi"], ["path", "pope"], ["path", "path"], ["shaw", "rope"],
    ["cable", "fox"], ["cope", {"name": "dape", "of": "kerple"}], ["deberta", "transformer_xl"],
    ["dpb", "sandwich"], ["rerope", "self_extend"], ["entmax", "alibi"], ["sink", "stick_breaking"],
]  # fmt: skip


def heads(*of, counts=None):
    return {"name": "heads", "of": list(of), "counts": counts}


def attention_of(encoding, x, q, k, v, kernel="auto"):
    """The output of a layer with one encoding, [B,H,T,D]."""
    pos = torch.arange(q.shape[2])
    context = AttentionContext(pos, pos, causal=encoding.size.causal, consecutive=True)
    layer = LayerEncodings([encoding])
    contexts = [replace(context, features=layer.read(x)[0])]
    turned = layer.rotate(q, k, contexts)
    return attend(*turned, v, ScoreTerms(layer, contexts, (q, k)), D**-0.5, kernel)


def content(batch=2, num_heads=6, length=11):
    x = torch.randn(batch, length, num_heads * D)
    return x, *torch.randn(3, batch, num_heads, length, D)


def groups_alone(encoding, x, *tensors):
    """The attention of each wrapped encoding by itself on its own heads, side by side."""
    split = (tensor.split(encoding.head_groups, 1) for tensor in tensors)
    return torch.cat([attention_of(of, x, *own) for of, *own in zip(encoding.of, *split, strict=True)], 1)


@pytest.mark.parametrize("counts", [None, [2, 4]])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "+".join(map(str, pair)))
def test_each_group_has_its_encoding_and_nothing_of_the_others(pair, counts, size_of, agree):
    encoding = build_encoding(heads(*pair, counts=counts), size_of(width_of_head=D)).eval()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_(std=0.5)
    given = content()
    grads = []
    for out in (attention_of(encoding, *given), groups_alone(encoding, *given)):
        loss = (out * torch.arange(6)[:, None, None]).square().mean()
        learned = [p for p in encoding.parameters() if p.requires_grad]
        grads.append([out, *(torch.autograd.grad(loss, learned, allow_unused=True) if learned else ())])
    for got, expected in zip(*grads, strict=True):
        if expected is not None:
            agree(got, expected, encoding="heads", against="each encoding by itself on its heads")


def test_each_is_built_for_its_number_of_heads(size_of):
    alibi, none = build_encoding(heads("alibi", "none", counts=[4, 2]), size_of()).of
    assert alibi.slope.tolist() == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]
    assert (none.size.num_heads, none.size.head_dim, none.size.d_model) == (2, 8, 48)


def test_two_of_one_kind_keep_their_own_rows(model_of, tokens):
    """PaTH keeps its keys as the last token sees them, and ReRoPE those turned twice."""
    row, nested = tokens(2, 14), heads(heads("path", "path"), "path", counts=[4, 2])
    for spec in (heads("path", "path"), heads("rerope", "rerope"), nested):
        model = model_of(spec)
        torch.testing.assert_close(decoded(model, row, [5, 1, 1, 3, 4]), model(row), rtol=0, atol=1e-5)


def test_two_of_one_kind_draw_coefficients_of_their_own(size_of):
    pair = {"name": "heads", "of": [{"name": "fope"}, {"name": "fope"}]}
    nested = build_encoding({"name": "heads", "of": [pair, {"name": "fope"}], "counts": [4, 2]}, size_of())
    first, second, third = (*nested.of[0].of, nested.of[1])
    draws = [part.mixing[:, 0] for part in (first, second, third)]
    assert not any(torch.equal(draws[a], draws[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert torch.equal(first.mixing, build_encoding("fope", size_of(num_heads=2, d_model=16)).mixing)


def test_the_pointwise_bias_is_the_table(size_of):
    encoding = build_encoding(heads("alibi", "none", "kerple", counts=[1, 2, 3]), size_of())
    pos = torch.arange(9)
    table = encoding.bias_table(AttentionContext(pos, pos, consecutive=True), 6)
    pointwise = encoding.bias(torch.arange(6)[:, None, None], pos[:, None], pos)
    torch.testing.assert_close(table, pointwise, rtol=0, atol=1e-6)
    assert not table[1:3].any()


def test_features_of_any_shape_reach_their_own_encoding(size_of):
    parts = [build_encoding(name, size_of()) for name in ("fox", "none", "fox")]
    parts[2].read = lambda x: x.reshape(*x.shape[:2], 4, -1)
    encoding = type(build_encoding(heads("none"), size_of()))(size_of(), of=parts)
    x = torch.randn(2, 5, 48)
    context = AttentionContext(torch.arange(5), torch.arange(5), features=encoding.read(x))
    first, second, third = (own.features for _, own in encoding._groups(context))
    assert torch.equal(first, parts[0].read(x)) and torch.equal(third, parts[2].read(x))
    assert second is None


# Claims.


def test_it_claims_what_holds_in_every_head(size_of):
    for of, relative, extrapolates, per_layer, final in (
        (["rope", "none"], True, "no", False, True),
        (["alibi", "t5"], True, "yes", False, True),
        (["rope", "xpos"], True, "no", False, False),
        (["alibi", "fox"], True, "yes", True, True),
        (["rope", "rerope"], False, "no", False, True),
    ):
        encoding = build_encoding(heads(*of), size_of())
        claims = encoding.relative, encoding.extrapolates, encoding.per_layer, encoding.rotation_is_final
        assert claims == (relative, extrapolates, per_layer, final), of


# Within one another.


@pytest.mark.parametrize("spec", [
    [heads("rope", "none"), heads("none", "alibi")],
    [heads("fox", "none"), "rope"],
    [heads("rope", "alibi"), "entmax"],
    [heads("sink", "none"), "rope"],
    heads("fire", "entmax"),
    {"name": "interleave", "pattern": [heads("rope", "alibi"), "none"]},
    heads({"name": "interleave", "pattern": ["rope", "path"]}, "alibi", counts=[4, 2]),
    heads(heads("alibi", "none"), "rope", counts=[4, 2]),
    {"name": "randomized", "of": heads("rope", "alibi")},
    {"name": "dape", "of": heads("alibi", "none")},
], ids=str)  # fmt: skip
def test_it_nests(spec, model_of, tokens):
    row = tokens(2, 12)
    model = model_of(spec)
    assert model.train()(row).isfinite().all()
    whole = model.eval()(row)
    if model.encoding.max_cached_length == 0:
        return
    torch.testing.assert_close(decoded(model, row, [5, 1, 6]), whole, rtol=0, atol=1e-5)


def test_grouped_keys(model_of, tokens):
    """Fewer key heads than query heads: groups of heads may share a key head."""
    row = tokens(2, 12)
    model = model_of(heads("rope", "alibi", counts=[1, 5]), num_kv_heads=2)
    whole = model(row)
    torch.testing.assert_close(decoded(model, row, [5, 1, 6]), whole, rtol=0, atol=1e-5)


# What cannot be.


def test_a_fault_in_it_is_reported_with_its_key(recipe):
    for options, problem in (
        ("of: [rope, nonne]", r"encoding\.of\.1: no encoding 'nonne'; did you mean 'none'"),
        ("of: [rope, none], counts: [0, 4]", r"encoding\.counts\.0: must be"),
        ("of: []", r"encoding\.of: must be a list of at least 1"),
    ):
        with pytest.raises(InputError, match=f"model.{problem}"):
            recipe("text", f"model.encoding={{name: heads, {options}}}")
