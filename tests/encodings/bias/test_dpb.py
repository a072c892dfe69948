"""Dynamic position bias against `x_transformers` and a loop; one pass of its network for each distance."""

import math

import pytest
import torch

from zoo.encodings.bias.dpb import DynamicPositionBias
from zoo.encodings.context import AttentionContext

HEADS, LENGTH = 6, 13
OPTIONS = [
    {},
    {"log_distance": False},
    {"norm": True},
    {"depth": 1, "width": 5},
    {"depth": 4, "log_distance": False, "norm": True},
]


def theirs_of(encoding, x_transformers, *, depth=2, width=12, log_distance=True, norm=False):
    """The module of the package with the weights of the encoding."""
    theirs = x_transformers.DynamicPositionBias(
        width, heads=HEADS, depth=depth, log_distance=log_distance, norm=norm
    )
    weights = {}
    for i, layer in enumerate(encoding.hidden):
        weights |= {f"mlp.{i}.0.{name}": value for name, value in layer.state_dict().items()}
        if norm:
            # The package's first norm has a gain alone, by another name; our offset starts at 0.
            names = {"weight": "gamma"} if i == 0 else {"weight": "weight", "bias": "bias"}
            weights |= {f"mlp.{i}.1.{other}": getattr(encoding.norms[i], n) for n, other in names.items()}
    weights[f"mlp.{depth}.weight"] = encoding.out.weight
    missing = theirs.load_state_dict(weights, strict=False)
    assert missing.unexpected_keys == []
    # Left as drawn: the last offset, which softmax does not see.
    assert missing.missing_keys == [f"mlp.{depth}.bias"]
    return theirs


@pytest.mark.parametrize(
    ("options", "causal"), list(zip(OPTIONS, (True, False, False, True, False), strict=True))
)
def test_the_bias_of_x_transformers(causal, options, size_of, agree):
    package = pytest.importorskip("x_transformers.x_transformers")
    encoding = DynamicPositionBias(size_of(causal=causal), **options)
    theirs = theirs_of(encoding, package, **options)
    offset = theirs.mlp[-1].bias[:, None, None]
    for first in (0, 9):
        pos = torch.arange(LENGTH)
        expected = theirs(LENGTH - first, LENGTH) - offset
        for consecutive in (True, False):
            context = AttentionContext(pos[first:], pos, first, causal, consecutive=consecutive)
            actual = encoding.bias_table(context, HEADS)
            against = "x_transformers DynamicPositionBias"
            agree(actual, expected, encoding="dpb", against=against)


def test_a_loop_over_the_formula(size_of, agree):
    encoding = DynamicPositionBias(size_of(causal=False), depth=2, width=3)
    (w1, b1), (w2, b2) = ((layer.weight.tolist(), layer.bias.tolist()) for layer in encoding.hidden)
    w3 = encoding.out.weight.tolist()
    expected = torch.zeros(HEADS, LENGTH, LENGTH)

    def silu(x):
        return x / (1 + math.exp(-x))

    for i in range(LENGTH):
        for j in range(LENGTH):
            x = math.copysign(math.log(1 + abs(i - j)), i - j)
            first = [silu(w1[n][0] * x + b1[n]) for n in range(3)]
            second = [silu(sum(w2[n][m] * first[m] for m in range(3)) + b2[n]) for n in range(3)]
            for h in range(HEADS):
                expected[h, i, j] = sum(w3[h][n] * second[n] for n in range(3))
    pos = torch.arange(LENGTH)
    actual = encoding.bias_table(AttentionContext(pos, pos, causal=False, consecutive=True), HEADS)
    agree(actual, expected, encoding="dpb", against="loop over the formula")


PLACES = {
    "moved": torch.arange(LENGTH) + 1000,
    "a batch": torch.arange(LENGTH) + torch.tensor([[0], [13], [1000]]),
    "padded": (torch.arange(LENGTH) - torch.tensor([[0], [5]])).clamp(min=0),
    "far apart": torch.arange(LENGTH) * 1000,
    "between": torch.arange(LENGTH) * 0.7,
}


@pytest.mark.parametrize(
    ("place", "distances"), [("moved", 2 * LENGTH - 1), ("a batch", 2 * LENGTH - 1), ("between", LENGTH**2)]
)
def test_the_network_runs_once_for_each_distance(place, distances, size_of, monkeypatch):
    encoding, seen = DynamicPositionBias(size_of(causal=False)), []
    at = encoding.at
    monkeypatch.setattr(encoding, "at", lambda distance: seen.append(distance.numel()) or at(distance))
    pos = PLACES[place]
    encoding.bias_table(AttentionContext(pos, pos, causal=False), HEADS)
    assert seen == [distances]
    if place == "moved":
        encoding.bias_table(AttentionContext(pos, pos, causal=False, consecutive=True), HEADS)
        assert seen == [distances] * 2
