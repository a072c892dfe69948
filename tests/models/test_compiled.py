"""`torch.compile` takes a model in one graph, whatever its encoding."""

import pytest
import torch

from zoo.encodings import registry


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("name", [*registry.names(), "forget_gate", "counted"])
def test_a_decoder_is_one_graph(name, plugins, model_of, tokens):
    model, row = model_of(name).train(), tokens(2, 12)
    out = torch.compile(model, fullgraph=True, backend="aot_eager")(row)
    torch.testing.assert_close(out, model(row), rtol=0, atol=1e-5)
    out.square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("name", ["alibi", "rope"])
def test_an_encoder_is_one_graph(name, model_of, tokens):
    model, row = model_of(name, "encoder"), tokens(2, 12)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(row), model(row), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.names())
def test_compiled_to_machine_code_it_is_the_same(name, model_of, tokens):
    model, row = model_of(name, num_layers=1), tokens(2, 12)
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(row), model(row), rtol=0, atol=1e-4)
