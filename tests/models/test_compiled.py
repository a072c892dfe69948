"""`torch.compile` to machine code; that it takes a model in one graph is a law of the contract."""

import pytest
import torch

from zoo import registry


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.encodings.names())
def test_compiled_to_machine_code_it_is_the_same(name, spec_of, model_of, tokens):
    model, row = model_of(spec_of(name), num_layers=1), tokens(2, 12)
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(row), model(row), rtol=0, atol=1e-4)
