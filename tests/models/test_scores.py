"""A pointwise bias as a table: over distances or point by point, it is the same."""

import pytest
import torch

from zoo.encodings.base import Span
from zoo.encodings.stack import build_encoding
from zoo.models import kernels
from zoo.registry import encodings

BY_DISTANCE = [name for name in encodings.names() if encodings.describe(name).distance_only]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("queries", "keys", "first"), [(9, 9, 0), (3, 9, 6), (1, 9, 8), (1, 1, 0), (4, 9, 2)]
)
@pytest.mark.parametrize("name", BY_DISTANCE)
def test_a_table_over_distances_is_the_pointwise_bias(name, queries, keys, first, causal, size_of):
    encoding = build_encoding(name, size_of(causal=causal))
    pos = torch.arange(keys)
    spans = [
        Span(pos[first : first + queries], pos, first, causal, consecutive=consecutive)
        for consecutive in (True, False)
    ]
    tables = [encoding.bias_table(span, 6) for span in spans]
    assert tables[0].shape == (6, queries, keys)
    # A matrix product may round a row by the number of rows beside it.
    torch.testing.assert_close(*tables, rtol=0, atol=0 if encoding.fused else 1e-6)
    for h in (0, 5):
        for i in range(queries):
            for j in range(keys):
                one = encoding.bias(torch.tensor(h), pos[first + i], pos[j])
                torch.testing.assert_close(tables[0][h, i, j], one)


@pytest.mark.parametrize("name", BY_DISTANCE)
def test_both_have_the_same_gradient(name, size_of):
    encoding, pos = build_encoding(name, size_of()), torch.arange(9)
    if not list(encoding.parameters()):
        assert not encoding.bias_table(Span(pos, pos), 6).requires_grad
        return
    weight = torch.randn(6, 9, 9)
    gradients = [
        torch.autograd.grad(
            (encoding.bias_table(Span(pos, pos, consecutive=consecutive), 6) * weight).sum(),
            list(encoding.parameters()),
        )
        for consecutive in (True, False)
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", BY_DISTANCE)
def test_only_the_distance_counts(name, size_of):
    """What `distance_only` claims."""
    for causal in (True, False):
        encoding = build_encoding(name, size_of(causal=causal))
        pos = torch.arange(40)
        near, far = (encoding.bias_table(Span(p, p, causal=causal), 6) for p in (pos, pos + 977))
        assert torch.equal(near, far)


def test_positions_of_their_own_for_each_sequence(size_of):
    encoding = build_encoding("t5", size_of())
    pos = torch.stack((torch.arange(7), torch.arange(0, 14, 2)))
    table = encoding.bias_table(Span(pos, pos), 6)
    assert table.shape == (2, 6, 7, 7)
    for b in range(2):
        assert torch.equal(table[b], encoding.bias_table(Span(pos[b], pos[b]), 6))


def memo_after(model, row, monkeypatch):
    """What a forward pass keeps for its layers, by key."""
    memo, spans_of = {}, model._spans

    def watched(*given):
        spans = spans_of(*given)
        memo.update({id(span.memo): span.memo for slot in spans for span in slot})
        return spans

    monkeypatch.setattr(model, "_spans", watched)
    with torch.no_grad():
        model(row)
    monkeypatch.setattr(model, "_spans", spans_of)
    return [key for one in memo.values() for key in one]


@pytest.mark.parametrize("name", [n for n in encodings.names() if encodings.describe(n).decoder])
def test_blocks_of_queries_leave_nothing_behind(name, spec_of, model_of, tokens, monkeypatch):
    """What a block computes goes with it: memory must not grow with the number of blocks."""
    model, row = model_of(spec_of(name), length=96), tokens(1, 96)
    whole = memo_after(model, row, monkeypatch)
    # 16 is the least block: six of them.
    monkeypatch.setattr(kernels, "BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(kernels, "FEWEST_ROWS", 16)
    assert len(memo_after(model, row, monkeypatch)) <= len(whole)


@pytest.mark.parametrize(
    ("spec", "kept"), [("alibi", 1), ("fire", 0), ({"name": "interleave", "pattern": ["alibi"]}, 0)], ids=str
)
def test_layers_with_a_bias_of_their_own_keep_no_mask(spec, kept, model_of, tokens, monkeypatch):
    keys = memo_after(model_of(spec), tokens(1, 12), monkeypatch)
    assert len([key for key in keys if key[0] in ("mask", "line")]) == kept
