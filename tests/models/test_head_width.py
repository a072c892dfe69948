"""Heads of a width of their own, as some published models have them."""

import torch

from zoo import registry
from zoo.contract.causality import decoded


def test_every_encoding_takes_heads_of_another_width(spec_of, model_of, tokens):
    row = tokens(2, 13)
    for name in registry.encodings.names():
        decoder = registry.encodings.describe(name).decoder
        model = model_of(spec_of(name), "decoder" if decoder else "encoder", head_dim=12)
        logits = model(row)
        assert logits.isfinite().all(), name
        logits.square().mean().backward()
        assert all(one.grad is not None for one in model.parameters() if one.requires_grad), name
        if not decoder or model.encoding.max_cached_length is not None:
            continue
        parts = decoded(model, row, [7, 1, 5])
        torch.testing.assert_close(
            parts, logits.detach(), atol=2e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
