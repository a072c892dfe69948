"""`torch.compile` to machine code; that it takes every encoding in one graph is a law of the contract."""

import pytest
import torch
import torch._inductor.config

pytestmark = pytest.mark.slow

# An encoding for each path of a compiled model: without a table, by distance, a table, attention weights; a
# bias of each key is tried on separate documents.
PATHS = ["rope", "t5", "fire", "cope"]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    # The processes of a pool would import torch, to compile kernels of a second each.
    with torch._inductor.config.patch(compile_threads=1):
        yield
    torch.compiler.reset()


@pytest.mark.parametrize("name", PATHS)
def test_training_compiled_to_machine_code_is_the_same(name, model_of, tokens):
    assert_same_training(model_of(name, num_layers=1).train(), tokens(2, 13))


def test_training_on_separate_documents_is_the_same(model_of, tokens):
    documents = torch.tensor([[0] * 5 + [5] * 8, [0] * 3 + [3] * 6 + [9] * 4])
    model, row = model_of("fox", num_layers=1, logit_scale="log_n").train(), tokens(2, 13)
    assert_same_training(model, row, documents=documents)
    assert not torch.allclose(model(row, documents=documents), model(row), atol=1e-2)


def assert_same_training(model, row, **documents):
    results = []
    for run in (torch.compile(model, fullgraph=True), model):
        model.zero_grad()
        out = run(row, **documents)
        out.square().mean().backward()
        results.append([out, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-5)


def test_evaluation_compiled_to_machine_code_is_the_same(model_of, tokens):
    model, row = model_of("t5", num_layers=1), tokens(2, 13)
    with torch.no_grad():
        expected = model(row)
        torch.testing.assert_close(torch.compile(model, fullgraph=True)(row), expected, rtol=0, atol=1e-4)
