"""`torch.compile` to machine code; that it takes every encoding in one graph is a law of the contract."""

import pytest
import torch

from zoo.models import kernels

pytestmark = pytest.mark.slow

# An encoding for each path of a compiled model, and the most keys of a sequence that counts as short there.
PATHS = [
    ("alibi", kernels.COMPILED_LENGTH),  # plain operations
    ("rope", 0),  # an operator without a table
    ("t5", 0),  # by distance
    ("fox", 0),  # a bias of each key
    ("deberta", 0),  # a table
    ("cope", 0),  # attention weights, in two blocks of queries
]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize(("name", "short"), PATHS)
def test_training_compiled_to_machine_code_is_the_same(name, short, model_of, tokens, monkeypatch):
    monkeypatch.setattr(kernels, "COMPILED_LENGTH", short)
    model, row = model_of(name, num_layers=1).train(), tokens(2, 13)
    results = []
    for run in (torch.compile(model, fullgraph=True), model):
        model.zero_grad()
        out = run(row)
        out.square().mean().backward()
        results.append([out, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-5)


def test_evaluation_compiled_to_machine_code_is_the_same(model_of, tokens):
    model, row = model_of("t5", num_layers=1), tokens(2, 13)
    with torch.no_grad():
        expected = model(row)
        torch.testing.assert_close(torch.compile(model, fullgraph=True)(row), expected, rtol=0, atol=1e-4)
