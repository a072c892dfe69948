"""Products with a vector of each distance against a loop over queries and keys."""

import pytest
import torch

from zoo.encodings import distance_products as room
from zoo.encodings.distance_products import distance_products

B, H, D = 2, 3, 4
TERMS = {"of queries": (True, False), "of keys": (False, True), "both": (True, True)}


def by_loop(q, k, of_query, of_key, row, causal):
    queries, keys = q.shape[2], k.shape[2]
    table = torch.zeros(B, H, queries, keys, dtype=q.dtype)
    for i in range(queries):
        for j in range(keys):
            place = queries - 1 - i + j
            if causal and j > keys - queries + i:
                continue
            if of_query is not None:
                table[:, :, i, j] += (q[:, :, i] * of_query[:, place]).sum(-1)
            if of_key is not None:
                table[:, :, i, j] += (k[:, :, j] * of_key[:, place]).sum(-1)
            if row is not None:
                table[:, :, i, j] += row[:, :, 0, j]
    return table


def inputs(queries, keys, causal, terms, with_row, dtype=torch.double):
    distances = keys if causal else queries + keys - 1
    shapes = [(B, H, queries, D), (B, H, keys, D)]
    shapes += [(H, distances, D) if wanted else None for wanted in terms]
    shapes += [(B, H, 1, keys) if with_row else None]
    return [None if s is None else torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes]


@pytest.mark.parametrize(
    ("terms", "causal", "sizes", "rows"),
    [
        ("both", True, (7, 7), 3),
        ("both", False, (3, 8), 1),
        ("both", False, (1, 5), 64),
        ("of queries", True, (3, 8), 64),
        ("of queries", False, (7, 7), 1),
        ("of queries", True, (1, 5), 3),
        ("of keys", True, (1, 5), 1),
        ("of keys", False, (3, 8), 3),
        ("of keys", False, (7, 7), 64),
    ],
    ids=str,
)
def test_values_and_gradients(terms, causal, sizes, rows, monkeypatch):
    monkeypatch.setattr(room, "ROWS", rows)
    given = inputs(*sizes, causal, TERMS[terms], with_row=True)
    queries, keys = sizes
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries if causal else keys)
    got, expected = (f(*given, causal) * seen for f in (distance_products, by_loop))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    cotangent, leaves = torch.randn_like(got), [x for x in given if x is not None]
    if terms == "of queries":
        del leaves[1]
    elif terms == "of keys":
        del leaves[0]
    for one, other in zip(*(torch.autograd.grad(x, leaves, cotangent) for x in (got, expected)), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_scores_of_masked_pairs_are_finite():
    given = inputs(70, 150, True, (True, True), with_row=False, dtype=torch.float32)
    assert distance_products(*given, True).isfinite().all()


def test_low_precision_gives_a_table_in_float32():
    given = inputs(70, 70, True, (True, True), with_row=False, dtype=torch.bfloat16)
    got = distance_products(*given, True)
    exact = distance_products(*(None if x is None else x.float() for x in given), True)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, exact, rtol=2**-7, atol=2**-5)
    gradients = torch.autograd.grad(got.square().sum(), given[:4])
    assert [one.dtype for one in gradients] == [torch.bfloat16] * 4


def test_compiled_it_gives_the_same():
    given = inputs(9, 9, True, (True, True), with_row=True, dtype=torch.float32)
    compiled = torch.compile(lambda *x: distance_products(*x, True).sin(), backend="aot_eager")
    torch.testing.assert_close(compiled(*given), distance_products(*given, True).sin())
