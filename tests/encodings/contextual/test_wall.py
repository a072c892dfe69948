"""Wall against a loop over its formula, also where gates close."""

import math

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.contextual.wall import BLOCK, Wall, gated_products

B, H, T, D = 2, 6, 13, 8
E = H * D


def wall_of(size, weight=0.5, bias=0.0):
    encoding = Wall(size, gate_bias=bias)
    torch.nn.init.normal_(encoding.gate.weight, std=weight)
    return encoding


def scores(encoding, q, k, x, **context):
    pos = torch.arange(x.shape[1])
    return encoding.score(q, k, AttentionContext(pos, pos, features=encoding.read(x), **context)).tril()


def test_every_channel_passes_the_gates_between_key_and_query(size_of, agree):
    """The gates of padding are open."""
    wall, x, (q, k) = wall_of(size_of()), torch.randn(B, T, E), torch.randn(2, B, H, T, D)
    keep = torch.ones(B, T, dtype=torch.bool)
    keep[1, 4:6] = False
    gate = torch.sigmoid(x.double() @ wall.gate.weight.double().T).unflatten(-1, (H, D))
    expected = torch.zeros(B, H, T, T, dtype=torch.float64)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, (B, H, T))).tolist():
        for j in range(i + 1):
            for n in range(D):
                open_to = math.prod(gate[b, t, h, n].item() for t in range(j + 1, i + 1) if keep[b, t])
                expected[b, h, i, j] += (q[b, h, i, n] * k[b, h, j, n]).item() * open_to / math.sqrt(D)
    got = scores(wall, q, k, x, keep=keep).detach()
    agree(got, expected.float(), encoding="wall", against="a loop over the formula")


@pytest.mark.parametrize("rows", [1, 5, BLOCK + 45])
def test_gates_that_close_neither_overflow_nor_lose_digits(rows, size_of, agree):
    """Over 173 tokens the sum of the log gates is far below -104, where float32 has no exponential."""
    wall, length = wall_of(size_of(), weight=10.0, bias=-20.0), BLOCK + 45
    x, (q, k) = torch.randn(1, length, E), torch.randn(2, 1, H, length, D).requires_grad_().unbind()
    sums = wall.read(x).double().unflatten(-1, (H, D)).transpose(1, 2).cumsum(2)
    assert sums.min() < -3000
    decay = (sums[:, :, :, None] - sums[:, :, None]).clamp(max=0).exp()
    expected = ((q[:, :, :, None] * k[:, :, None] * decay).sum(-1) * D**-0.5).tril()[:, :, -rows:]
    pos = torch.arange(length)
    context = AttentionContext(pos, pos, features=wall.read(x)).queries(length - rows, length)
    got = wall.score(q[:, :, -rows:], k, context).tril(length - rows)
    agree(got.detach(), expected.float().detach(), encoding="wall", against="a sum in float64, gates closed")
    inputs = q, k, wall.gate.weight
    for one, other in zip(
        torch.autograd.grad(got.square().sum(), inputs),
        torch.autograd.grad(expected.square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_it_starts_as_published(model_of):
    model = model_of("wall", large_weights=False)
    gates = [encoding.gate for encoding in model.encoding.slots[0]]
    assert all((gate.bias == 8).all() and 0.01 < gate.weight.std() < 0.03 for gate in gates)
    assert not torch.equal(gates[0].weight, gates[1].weight)


def test_compiled_any_length_takes_few_operations_and_gives_the_same():
    """Compiling 57 tokens in four parts took 83 s, in one part 28 s."""

    def operations(queries, keys):
        given = [torch.randn(1, 2, keys, 4) for _ in range(2)] + [-torch.rand(1, 2, keys, 4)]
        given[0] = given[0][:, :, keys - queries :]
        captured = []
        compiled = torch.compile(gated_products, backend=lambda graph, _: captured.append(graph) or graph)
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        torch.testing.assert_close(compiled(*given)[..., seen], gated_products(*given)[..., seen])
        return len(captured[0].graph.nodes)

    torch.compiler.reset()
    assert operations(57, 57) < 1.1 * operations(64, 64)
    operations(5, 9)
    torch.compiler.reset()
