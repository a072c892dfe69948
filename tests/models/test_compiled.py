"""`torch.compile` to machine code; that it takes a model in one graph is a law of the contract."""

import pytest
import torch

from zoo import registry
from zoo.models import kernels


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["none", "t5", "fox", "shaw"])
def test_so_it_is_in_training_with_attention_in_blocks(name, model_of, tokens, monkeypatch):
    monkeypatch.setattr(kernels, "COMPILED_LENGTH", 0)
    model, row = model_of(name, num_layers=1).train(), tokens(2, 12)
    results = []
    for run in (torch.compile(model, fullgraph=True), model):
        model.zero_grad()
        run(row).square().mean().backward()
        results.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("length", [8, 9])
def test_of_short_sequences_the_compiler_sees_the_operations_of_attention(
    length, model_of, tokens, monkeypatch
):
    monkeypatch.setattr(kernels, "COMPILED_LENGTH", 8)
    called = []

    def backend(graph, _):
        called.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    torch.compile(model_of("alibi", num_layers=1), backend=backend)(tokens(1, length))
    assert any("blocked_attention" in name for name in called) == (length > 8)
