"""The table of proofs: the reference of each encoding, and the largest difference from it."""

import pytest
import torch


@pytest.fixture
def agree(record_property):
    """Assert that two tensors agree, and record the largest difference for the table of proofs.

    `against` names the independent formula or the package and class; `encoding` the registry name.
    """

    def agree(actual, expected, *, encoding, against, atol=1e-5):
        assert actual.shape == expected.shape, f"{list(actual.shape)} against {list(expected.shape)}"
        infinite = ~expected.isfinite()
        assert torch.equal(actual[infinite], expected[infinite])
        difference = (actual - expected)[~infinite].abs().max().item() if not infinite.all() else 0.0
        record_property("proof", (encoding, against, difference))
        assert difference <= atol, f"{encoding} against {against}: off by {difference:.3g}"

    return agree
