"""Randomized positions: the draws against a loop and their statistics, and where they are plain."""

import itertools
from collections import Counter
from math import comb, floor

import pytest
import torch

from zoo.encodings.stack import build_encoding

WRAPPED = ["sinusoidal", "rope", "alibi", "t5", "shaw"]


def randomized(of="rope", **options):
    return {"name": "randomized", "of": of, **options}


def drawn_by_loop(order, length):
    """Take from a shuffled range, one by one, as many as there are tokens; then put them in order."""
    taken = []
    for position in order.tolist():
        if len(taken) < length:
            taken.append(position)
    return sorted(taken)


@pytest.fixture
def draws(size_of):
    """draws(n, length, most): so many draws in training, [n, length]."""

    def draws(count, length, most):
        encoding = build_encoding(randomized(max_position=most), size_of(length=2)).train()
        ids = torch.arange(length)
        return torch.stack([encoding.positions(ids, 1) for _ in range(count)])

    return draws


# The draw in training.


@pytest.mark.parametrize(
    ("of", "kind"), [(of, "decoder") for of in WRAPPED] + [("alibi", "encoder"), ("t5", "encoder")]
)
def test_it_is_the_wrapped_encoding_at_drawn_positions(of, kind, model_of, tokens, agree):
    row = tokens(3, 12)
    model, inner = model_of(randomized(of, max_position=300), kind).train(), model_of(of, kind)
    torch.manual_seed(5)
    got = model(row)
    torch.manual_seed(5)
    positions = torch.tensor(drawn_by_loop(torch.rand(300).argsort(), 12))
    assert positions.tolist() != list(range(12))
    agree(got, inner(row, positions=positions), encoding="randomized", against="a loop over the draw")


def test_every_choice_of_positions_is_as_likely(draws):
    """5 over 2 are 10 choices; a count has the standard deviation sqrt(n p (1 - p)) = 24."""
    count = 6400
    seen = Counter(map(tuple, draws(count, 2, 5).tolist()))
    assert set(seen) == set(itertools.combinations(range(5), 2))
    for times in seen.values():
        assert abs(times - count / 10) < 4 * (count * 0.1 * 0.9) ** 0.5


def test_a_shorter_sequence_of_a_batch_draws_from_the_full_range(size_of):
    """Not the lowest few of the longest one's positions, as cutting that draw off would give."""
    encoding = build_encoding(randomized(max_position=100), size_of()).train()
    ids = torch.stack((torch.arange(50), torch.arange(50).clamp(max=1), (torch.arange(50) - 48).clamp(min=0)))
    got = torch.stack([encoding.positions(ids, 3) for _ in range(400)])
    short, padded_left = got[:, 1], got[:, 2]
    # Padding stands where its neighbour does.
    assert torch.equal(short[:, 1], short[:, -1]) and torch.equal(padded_left[:, 0], padded_left[:, 48])
    assert torch.equal(short[:, :2], padded_left[:, -2:])
    # The mean of the lower of two is (M + 1) / 3 - 1, here 32.7; its standard deviation 23.7 / sqrt(400).
    assert short[:, 0].float().mean().item() == pytest.approx(32.67, abs=5)
    assert short[:, 1].float().mean().item() == pytest.approx(66.33, abs=5)


@pytest.mark.parametrize("of", ["alibi", "shaw", {"name": "interleave", "pattern": ["rope", "none"]}])
def test_all_layers_share_a_draw_or_draw_for_themselves(of, model_of):
    for draw in ("once", "layer"):
        stack = model_of(randomized(of, draw=draw), num_layers=3).train().encoding
        places = stack.map_instances(lambda encoding: encoding.positions(torch.arange(12), 1))
        rows = [stack.instances_of_layer(places, layer)[0].tolist() for layer in range(3)]
        assert len(set(map(tuple, rows))) == (1 if draw == "once" else 3)


# Outside training.


@pytest.mark.parametrize("draw", ["once", "layer"])
def test_the_evaluation_draw_is_a_draw_for_each_length(draw, size_of):
    encodings = [
        build_encoding(randomized(max_position=2048, draw=draw), size_of(layer=layer)).eval()
        for layer in range(2)
    ]
    rows = [[one.positions(torch.arange(n), 1) for n in (5, 16, 17, 500, 2048)] for one in encodings]
    for row in rows[0]:
        assert (row[1:] > row[:-1]).all() and row.min() >= 0 and row.max() < 2048
    # Half of the range holds about half of them: 250 of 500, with a standard deviation of 10.
    assert abs((rows[0][3] < 1024).sum().item() - 250) < 40
    # The draws of two lengths are independent: of 16 among 2048, both have 0.1 by chance.
    assert len(set(rows[0][1].tolist()) & set(rows[0][2].tolist())) <= 2
    assert torch.equal(rows[0][3], rows[1][3]) == (draw == "once")


def test_spread_is_the_mean_of_all_draws(size_of):
    for length, most in ((1, 4), (3, 7), (5, 8), (6, 6)):
        sums = [0] * length
        for choice in itertools.combinations(range(most), length):
            sums = [total + position for total, position in zip(sums, choice, strict=True)]
        # Rounded down, from exact fractions.
        expected = [floor(total / comb(most, length) + 1e-9) for total in sums]
        encoding = build_encoding(
            randomized(max_position=most, evaluation="spread"), size_of(length=1)
        ).eval()
        assert encoding.positions(torch.arange(length), 1).tolist() == expected


# Real numbers in place of integers.


@pytest.mark.parametrize("of", ["sinusoidal", "rope", "alibi"])
def test_continuous_positions_are_sorted_uniform_numbers(of, model_of, tokens, agree):
    row = tokens(3, 12)
    model, inner = model_of(randomized(of, max_position=300, continuous=True)).train(), model_of(of)
    torch.manual_seed(5)
    got = model(row)
    torch.manual_seed(5)
    positions = torch.tensor(sorted(300 * number for number in torch.rand(300)[:12].tolist()))
    against = "a loop over the draw of real numbers"
    agree(got, inner(row, positions=positions), encoding="randomized", against=against)


@pytest.mark.parametrize("training", [True, False])
def test_continuous_draws_are_uniform_in_training_and_outside(training, size_of):
    most = 3000
    encoding = build_encoding(randomized(max_position=most, continuous=True), size_of()).train(training)
    got = encoding.positions(torch.arange(most), 1)
    assert got.dtype == torch.float32 and (got.diff() >= 0).all() and got.min() >= 0 and got.max() <= most
    # The largest distance to the uniform distribution exceeds 1.95 / sqrt(n) once in 1,000 draws.
    assert (got / most - torch.arange(most) / most).abs().max() < 1.95 / most**0.5
    assert (got - got.round()).abs().mean() == pytest.approx(0.25, abs=0.02)


def test_continuous_positions_outside_training_are_fixed(model_of, tokens, size_of):
    row = tokens(1, 9)
    for evaluation in ("draw", "spread", "plain"):
        model = model_of(randomized(evaluation=evaluation, continuous=True))
        first = model(row)
        torch.rand(1)
        assert torch.equal(model(row), first)
        padded = torch.cat((tokens(1, 5), row), 1)
        got = model(padded, torch.arange(14)[None] >= 5)[:, 5:]
        torch.testing.assert_close(got, first, rtol=0, atol=1e-5)
    encoding = build_encoding(
        randomized(max_position=100, evaluation="spread", continuous=True), size_of(length=3)
    ).eval()
    assert encoding.positions(torch.arange(3), 1).tolist() == [25, 50, 75]


# Identity and limits.


def test_its_claims(size_of):
    drawn, plain = (
        build_encoding(randomized(evaluation=evaluation), size_of()) for evaluation in ("draw", "plain")
    )
    assert (drawn.relative, drawn.extrapolates) == (False, "policy")
    assert (plain.relative, plain.extrapolates) == (True, "no")
