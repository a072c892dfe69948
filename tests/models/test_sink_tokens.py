"""The first tokens stay visible beyond a window, as in StreamingLLM (arXiv:2309.17453)."""

import pytest
import torch
from layouts import context_with

from zoo import registry
from zoo.models.logit_scale import visible_keys

SINKS, WINDOW, LENGTH = 2, 4, 15
BEYOND = {"window": WINDOW, "sink_tokens": SINKS}
# In contextual encodings the features of tokens count that have left the window, in abacus their digits.
RELATIVE = [
    name
    for name, one in registry.encodings.all().items()
    if one.cls.relative and one.decoder and one.cls.family != "contextual" and not one.cls.reads_tokens
]


def same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", [*RELATIVE, "interleave"])
def test_a_query_sees_a_cache_of_the_first_tokens_and_the_window(name, spec_of, model_of, tokens):
    """Positions count inside the cache: the last token of the cache alone has the same output."""
    spec, row = spec_of(name), tokens(2, LENGTH)
    plain, model = (model_of(spec, num_layers=1, **options) for options in ({}, BEYOND))
    with torch.no_grad():
        out = model(row)
        for i in range(LENGTH):
            rows = sorted({*range(min(SINKS, i + 1)), *range(max(0, i - WINDOW + 1), i + 1)})
            same(out[:, i], plain(row[:, rows])[:, -1])


@pytest.mark.parametrize(
    "options", [{}, {"padded": 4}, {"query_offset": 8}, {"query_offset": 8, "padded": 3}]
)
def test_the_mask_and_the_number_of_visible_keys(options):
    context = context_with(keys=LENGTH, **options).in_window(WINDOW, SINKS)
    allowed = context.allowed().expand(2, 1, -1, -1)
    assert torch.equal(visible_keys(context).expand(2, -1), allowed.sum(-1)[:, 0])
    first = torch.tensor([0, options.get("padded", 0)])
    for b, t, j in torch.cartesian_prod(*map(torch.arange, (2, context.num_queries, LENGTH))).tolist():
        i = t + context.query_offset
        expected = first[b] <= j <= i and (i - j < WINDOW or j < first[b] + SINKS)
        assert allowed[b, 0, t, j] == bool(expected)
