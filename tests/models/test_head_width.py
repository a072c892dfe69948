"""Heads of a width of their own, as some published models have them."""

import pytest
import torch

from zoo import registry
from zoo.models.cache import Cache


@pytest.mark.parametrize("name", registry.encodings.names())
def test_every_encoding_takes_heads_of_another_width(name, spec_of, model_of, tokens):
    decoder = registry.encodings.describe(name).decoder
    model, row = model_of(spec_of(name), "decoder" if decoder else "encoder", head_dim=12), tokens(2, 12)
    logits = model(row)
    assert logits.isfinite().all()
    logits.square().mean().backward()
    assert all(one.grad is not None for one in model.parameters() if one.requires_grad)
    if not decoder or model.encoding.max_cached_length is not None or model.training:
        return
    with torch.no_grad():
        cache = Cache(model.num_layers)
        torch.manual_seed(0)
        parts = torch.cat([model(part, cache=cache) for part in row.split([7, 1, 4], 1)], 1)
        if not any(encoding.uses("positions") for slot in model.encoding.slots for encoding in slot):
            torch.testing.assert_close(parts, logits.detach(), atol=2e-5, rtol=1e-4)
