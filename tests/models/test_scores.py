"""A pointwise bias as a table: over distances or point by point, it is the same."""

import pytest
import torch

from zoo.encodings.base import AttentionContext
from zoo.encodings.stack import build_encoding
from zoo.models import kernels
from zoo.registry import encodings

BY_DISTANCE = [name for name in encodings.names() if encodings.describe(name).distance_only]


@pytest.mark.parametrize("name", BY_DISTANCE)
def test_a_table_over_distances_is_the_pointwise_bias(name, size_of):
    for causal in (True, False):
        encoding = build_encoding(name, size_of(causal=causal))
        for queries, keys, first in [(9, 9, 0), (3, 9, 6), (1, 9, 8), (1, 1, 0), (4, 9, 2)]:
            pos = torch.arange(keys)
            contexts = [
                AttentionContext(pos[first : first + queries], pos, first, causal, consecutive=consecutive)
                for consecutive in (True, False)
            ]
            tables = [encoding.bias_table(context, 6) for context in contexts]
            assert tables[0].shape == (6, queries, keys)
            # A matrix product may round a row by the number of rows.
            torch.testing.assert_close(*tables, rtol=0, atol=0 if encoding.fused else 1e-6)
            for h in (0, 5):
                points = [
                    encoding.bias(torch.tensor(h), q, k) for q in pos[first : first + queries] for k in pos
                ]
                torch.testing.assert_close(tables[0][h].flatten(), torch.stack(points))


@pytest.mark.parametrize("name", BY_DISTANCE)
def test_a_table_over_distances_has_the_gradient_of_a_pointwise_one(name, size_of):
    encoding, pos = build_encoding(name, size_of()), torch.arange(9)
    tables = [encoding.bias_table(AttentionContext(pos, pos, consecutive=one), 6) for one in (True, False)]
    parameters, weight = list(encoding.parameters()), torch.randn(6, 9, 9)
    assert all(table.requires_grad == bool(parameters) for table in tables)
    if parameters:
        gradients = [torch.autograd.grad((table * weight).sum(), parameters) for table in tables]
        torch.testing.assert_close(*gradients)


def test_only_the_distance_counts(size_of):
    """For every encoding that declares `distance_only`."""
    pos = torch.arange(41)
    for name in BY_DISTANCE:
        for causal in (True, False):
            encoding = build_encoding(name, size_of(causal=causal))
            near, far = (
                encoding.bias_table(AttentionContext(p, p, causal=causal), 6) for p in (pos, pos + 977)
            )
            assert torch.equal(near, far), name


def test_each_sequence_may_have_its_own_positions(size_of):
    encoding = build_encoding("t5", size_of())
    pos = torch.stack((torch.arange(7), torch.arange(0, 14, 2)))
    table = encoding.bias_table(AttentionContext(pos, pos), 6)
    assert table.shape == (2, 6, 7, 7)
    for b in range(2):
        assert torch.equal(table[b], encoding.bias_table(AttentionContext(pos[b], pos[b]), 6))


def shared_after(model, row, monkeypatch):
    """The keys of all that a forward pass stores for its layers."""
    memo, spans_of = {}, model._contexts

    def watched(*given):
        contexts = spans_of(*given)
        memo.update({id(context.shared): context.shared for slot in contexts for context in slot})
        return contexts

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(model, "_contexts", watched)
        model(row)
    return [key for one in memo.values() for key in one]


@pytest.mark.parametrize("name", ["rope", "t5", "fire", "fox", "path", "deberta", "cope", "shaw"])
def test_blocks_of_queries_leave_nothing_behind(name, model_of, tokens, monkeypatch):
    """Memory does not grow with the number of blocks."""
    model, row = model_of(name, length=97), tokens(1, 97)
    whole = shared_after(model, row, monkeypatch)
    # 16 is the smallest block: seven of them.
    monkeypatch.setattr(kernels, "BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(kernels, "BLOCK_ROWS", 16)
    assert len(shared_after(model, row, monkeypatch)) <= len(whole)


def test_layers_with_a_bias_of_their_own_keep_no_mask(model_of, tokens, monkeypatch):
    for spec, kept in (("alibi", 1), ("fire", 0), ({"name": "interleave", "pattern": ["alibi"]}, 0)):
        keys = shared_after(model_of(spec), tokens(1, 12), monkeypatch)
        assert len([key for key in keys if key[0] in ("mask", "line")]) == kept, spec
