"""Inkling's bias against `transformers`, `x_transformers` and a loop over the formula in float64."""

import pytest
import torch

from zoo.encodings.content.inkling import Inkling
from zoo.encodings.context import AttentionContext

B, H, T, WIDTH = 2, 6, 13, 48
POS = torch.arange(T)


def score_of(encoding, x, pos=POS, start=0, consecutive=False):
    context = AttentionContext(
        pos[..., start:], pos, start, consecutive=consecutive, features=encoding.read(x)
    )
    return encoding.score(x, x, context).detach()


@pytest.mark.parametrize("far", [5, 1024])
def test_the_bias_of_transformers(far, size_of, agree):
    modeling = pytest.importorskip("transformers.models.inkling.modeling_inkling")
    encoding, x = Inkling(size_of(), max_distance=far), torch.randn(B, T, WIDTH)
    theirs = modeling.InklingRelativeLogits(16, far)
    theirs.proj.data = encoding.curves.data
    states = (x @ encoding.mix.weight.T).view(B, T, H, 16)
    for start in (0, 9):
        expected = theirs(states[:, start:], POS[start:], POS).detach()
        for consecutive in (True, False):
            got = score_of(encoding, x, start=start, consecutive=consecutive)
            agree(got, expected, encoding="inkling", against="transformers InklingRelativeLogits")


def test_the_bias_of_x_transformers(size_of, agree):
    package = pytest.importorskip("x_transformers.x_transformers")
    encoding, x = Inkling(size_of(), curves=3, max_distance=5, offset=True), torch.randn(B, T, WIDTH)
    theirs = package.RelativeProjPositionalBias(WIDTH, H, num_distance_basis=3, max_dist=5)
    theirs.to_distance_weights[0].load_state_dict(encoding.mix.state_dict())
    theirs.distance_bank.data = encoding.curves.data
    expected = theirs(x).detach()
    agree(
        score_of(encoding, x), expected,
        encoding="inkling", against="x_transformers RelativeProjPositionalBias",
    )  # fmt: skip


def test_a_loop_over_the_formula(size_of, agree):
    encoding, x = Inkling(size_of(), curves=4, max_distance=7), torch.randn(B, T, WIDTH)
    torch.nn.init.normal_(encoding.curves)
    pos = torch.randint(30, (B, T)).sort().values
    weights, curves = encoding.mix.weight.double().view(H, 4, WIDTH), encoding.curves.double()
    expected = torch.zeros(B, H, T, T, dtype=torch.float64)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, (B, H, T, T))).tolist():
        distance = (pos[b, i] - pos[b, j]).item()
        if 0 <= distance < 7:
            expected[b, h, i, j] = (weights[h] @ x[b, i].double()) @ curves[:, distance]
    agree(
        score_of(encoding, x, pos), expected.detach().float(),
        encoding="inkling", against="a loop over the formula in float64",
    )  # fmt: skip
