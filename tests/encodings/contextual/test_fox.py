"""The forget gate against `x_transformers` and a loop over the formula."""

import math

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.contextual.fox import FoX

B, H, T, E = 2, 6, 13, 48


def score_of(encoding, x, **context):
    pos = torch.arange(x.shape[1])
    q = torch.zeros(len(x), H, x.shape[1], E // H)
    return encoding.score(q, q, AttentionContext(pos, pos, features=encoding.read(x), **context)).detach()


@pytest.fixture
def fox(size_of):
    encoding = FoX(size_of(), gate_bias=1.0)
    torch.nn.init.normal_(encoding.gate.weight, std=0.3)
    torch.nn.init.normal_(encoding.gate.bias)
    return encoding


def test_the_sum_of_log_gates_between_key_and_query(fox, agree):
    x = torch.randn(B, T, E)
    expected = torch.zeros(B, H, T, T)
    for b in range(B):
        for h in range(H):
            for i in range(T):
                for j in range(i):
                    for t in range(j + 1, i + 1):
                        gate = 1 / (1 + math.exp(-(fox.gate.weight[h] @ x[b, t] + fox.gate.bias[h]).item()))
                        expected[b, h, i, j] += math.log(gate)
    agree(score_of(fox, x).tril(), expected, encoding="fox", against="formula: sum of log f, by a loop")


def test_the_data_dependent_alibi_of_x_transformers(fox, agree):
    module = pytest.importorskip("x_transformers.x_transformers")
    theirs = module.DataDependentAlibi(E, H)
    theirs.to_forget_gates[0].load_state_dict(fox.gate.state_dict())
    x = torch.randn(B, T, E)
    agree(score_of(fox, x), theirs(x).detach(), encoding="fox", against="x_transformers DataDependentAlibi")


def test_each_layer_has_its_own_gates_and_they_start_as_published(model_of):
    for bias in (0.0, 5.0):
        model = model_of({"name": "fox", "gate_bias": bias}, large_weights=False)
        gates = [encoding.gate for encoding in model.encoding.slots[0]]
        assert len(gates) == 2 and not torch.equal(gates[0].weight, gates[1].weight)
        assert all((gate.bias == bias).all() and gate.weight.std() < 0.03 for gate in gates)
