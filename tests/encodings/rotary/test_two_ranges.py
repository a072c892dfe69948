"""Encodings for models trained with RoPE, which turn each pair by a distance of their own: against a loop."""

import cmath
import math

import pytest
import torch
from published import publish
from test_rope_scaling import formula

import zoo
from zoo import registry
from zoo.encodings.base import Size
from zoo.encodings.context import AttentionContext, per_query_and_key
from zoo.errors import InputError
from zoo.pretrained.import_model import import_model, read_published

D, T, LENGTH = 8, 14, 6
POS = torch.arange(T)
FAR = torch.stack((POS, POS + 41))


def clipped(window, leak=0.0):
    def distance(i, j):
        d = abs(i - j)
        return math.copysign(d if d < window else window + leak * (d - window), i - j)

    return distance


def grouped(window, group):
    def distance(i, j):
        if abs(i - j) < window:
            return i - j
        return i // group - j // group + math.copysign(window - window // group, i - j)

    return distance


def shifted(window, local):
    def distance(i, j):
        d = abs(i - j)
        return math.copysign(d if d < window else d - window + local, i - j)

    return distance


def chunked(longest, window):
    """The distance of a query at i from a key at j, not later."""
    c = longest - window

    def distance(i, j):
        if i // c == j // c:
            return i - j
        if i // c == j // c + 1:
            return min(i % c + c, longest) - j % c
        return min(2 * c - 1, longest) - j % c

    return distance


DISTANCES = {"rerope": clipped, "self_extend": grouped, "string": shifted, "dual_chunk": chunked}
CASES = [
    ("rerope", {"window": 3, "log_scale": False}, POS, True),
    ("rerope", {"window": 3, "log_scale": True}, FAR, False),
    ("rerope", {"window": 4, "leak": 1 / 16, "log_scale": True}, FAR, True),
    ("rerope", {"window": 1, "leak": 0.5, "log_scale": False}, POS, False),
    ("self_extend", {"window": 3, "group": 2}, POS, True),
    ("self_extend", {"window": 4, "group": 3}, FAR, False),
    ("self_extend", {"window": 1, "group": 8}, FAR, True),
    ("self_extend", {"window": 5, "group": 5}, POS, False),
    ("string", {"window": 5, "local": 2}, POS, True),
    ("string", {"window": 6, "local": 1}, FAR, False),
    ("string", {"window": 3, "local": 3}, FAR, True),
    ("string", {"window": 1, "local": 4}, POS, False),
    *(("dual_chunk", {"longest": longest, "window": window}, pos, True)
      for longest, window, pos in ((6, 2, POS), (5, 4, FAR), (9, 1, FAR), (40, 3, POS), (4, 1, POS))),
]  # fmt: skip


def of_options(name, options):
    return DISTANCES[name](**{key: value for key, value in options.items() if key != "log_scale"})


def scores_by_pairs(q, k, pos, distance_of, width=D, half=True, scale_of=lambda p: 1.0, frequency=None):
    """Scores [B,H,T,T]: each pair of a query and a key turned by the distance from `distance_of`."""
    frequency = frequency or [10000 ** (-2 * pair / width) for pair in range(width // 2)]
    scores = torch.zeros(*q.shape[:3], k.shape[2], dtype=torch.float64)
    for b, h, t, s in torch.cartesian_prod(*(torch.arange(n) for n in scores.shape)).tolist():
        i, j = ((pos[b] if pos.dim() == 2 else pos)[row].item() for row in (t, s))
        one, other = q[b, h, t].tolist(), k[b, h, s].tolist()
        total = sum(x * y for x, y in zip(one[width:], other[width:], strict=True))
        for pair in range(width // 2):
            at = (pair, pair + width // 2) if half else (2 * pair, 2 * pair + 1)
            a, c = complex(one[at[0]], one[at[1]]), complex(other[at[0]], other[at[1]])
            total += (a * c.conjugate() * cmath.exp(1j * distance_of(i, j) * frequency[pair])).real
        scores[b, h, t, s] = scale_of(i) * total / math.sqrt(q.shape[-1])
    return scores.float()


def scores_of(encoding, q, k, context):
    """The scores of a layer with the encoding, before the mask."""
    turned_q, turned_k = encoding.rotate(q, k, context)
    return encoding.logits(turned_q @ turned_k.mT * q.shape[-1] ** -0.5, q, k, context)


@pytest.fixture
def made(size_of):
    def made(name, causal=True, **options):
        size = size_of(d_model=2 * D, num_heads=2, length=LENGTH, causal=causal)
        return registry.encodings.load(name)(size, **options)

    return made


@pytest.mark.parametrize(("name", "options", "pos", "causal"), CASES)
def test_each_pair_is_turned_by_its_distance(name, options, pos, causal, made, agree):
    q, k = torch.randn(2, 2, 2, T, D)
    encoding, context = made(name, causal, **options), AttentionContext(pos, pos, causal=causal)

    def scale_of(p):
        return max(1.0, math.log(p + 1) / math.log(LENGTH)) if options.get("log_scale") else 1.0

    expected = scores_by_pairs(q, k, pos, of_options(name, options), scale_of=scale_of)
    # A decoder promises nothing of the pairs that its mask hides.
    i, j = per_query_and_key(context.q_pos, context.k_pos)
    seen = ((j <= i) if causal else torch.ones_like(i >= j)).float()
    got = scores_of(encoding, q, k, context)
    agree(got * seen, expected * seen, encoding=name, against="a loop over distances")


@pytest.mark.parametrize(("name", "options"), [CASES[0][:2], CASES[-1][:2]])
def test_layout_and_partial_are_those_of_rope(name, options, made, agree):
    q, k = torch.randn(2, 1, 2, T, D)
    encoding = made(name, layout="interleaved", partial=0.5, **options)
    got = scores_of(encoding, q, k, AttentionContext(POS, POS)).tril()
    expected = scores_by_pairs(q, k, POS, of_options(name, options), width=4, half=False).tril()
    agree(got, expected, encoding=name, against="a loop, half the width interleaved")


SAME = [
    *(("rerope", {"log_scale": False, **own}) for own in ({"window": 32}, {"window": 3, "leak": 1.0})),
    *(("self_extend", own) for own in ({"window": 32}, {"window": 3, "group": 1})),
    *(("string", own) for own in ({"window": 32}, {"window": 6, "local": 6})),
    ("dual_chunk", {"longest": 35, "window": 3}),
]


@pytest.mark.parametrize(("name", "options"), SAME)
def test_where_no_distance_changes_it_is_rope(name, options, model_of, tokens, agree):
    row = tokens(2, 32)
    for kind in ("decoder", "encoder") if registry.encodings.describe(name).encoder else ("decoder",):
        got, expected = (model_of(spec, kind)(row) for spec in ({"name": name, **options}, "rope"))
        agree(got, expected, encoding=name, against="rope, nothing changed")


def test_a_bias_added_to_the_scores_is_kept(model_of, tokens, made):
    q, k, added = *torch.randn(2, 1, 2, T, D), torch.randn(1, 2, T, T)
    encoding, context = made("rerope", window=3), AttentionContext(POS, POS)
    turned_q, turned_k = encoding.rotate(q, k, context)
    scores = turned_q @ turned_k.mT * D**-0.5
    got = encoding.logits(scores + added, q, k, context) - encoding.logits(scores, q, k, context)
    torch.testing.assert_close(got, added, rtol=0, atol=1e-5)
    row, long = tokens(2, 32), {"name": "rerope", "window": 32, "log_scale": False}
    both, rope = model_of(["alibi", long])(row), model_of(["alibi", "rope"])(row)
    torch.testing.assert_close(both, rope, rtol=0, atol=1e-5)


def test_the_ranges_follow_the_trained_length(size_of):
    for name, length, expected in (
        ("rerope", 4096, {"window": 1024}), ("rerope", 2, {"window": 1}),
        ("string", 131072, {"window": 43690, "local": 128}), ("string", 768, {"window": 256, "local": 128}),
        ("string", 256, {"window": 85, "local": 42}), ("string", 1, {"window": 1, "local": 1}),
        ("dual_chunk", 4096, {"longest": 3072, "window": 512, "chunk": 2560}),
        ("dual_chunk", 256, {"longest": 192, "window": 32, "chunk": 160}),
        ("dual_chunk", 8, {"longest": 6, "window": 1, "chunk": 5}),
        ("dual_chunk", 1, {"longest": 2, "window": 1, "chunk": 1}),
    ):  # fmt: skip
        encoding = registry.encodings.load(name)(size_of(length=length))
        assert {key: getattr(encoding, key) for key in expected} == expected, (name, length)
    with pytest.raises(ValueError, match="window 7 must be below the longest distance 7"):
        registry.encodings.load("dual_chunk")(size_of(), longest=7, window=7)


# With a scaling of RoPE.

SCALINGS = [
    ("linear", {"factor": 4.0}), ("ntk", {"factor": 4.0, "partial": 0.5}),
    ("yarn", {"factor": 4.0, "base": 500.0}), ("llama3", {"factor": 8.0}), ("none", {"proportion": 0.6}),
]  # fmt: skip
NOTHING_CHANGED = {"self_extend": "window: 64", "dual_chunk": "longest: 80, window: 8",
                   "rerope": "window: 64, log_scale: false", "string": "window: 64"}  # fmt: skip
SCALED = {
    "self_extend": {"window": 4, "group": 3}, "dual_chunk": {"longest": 9, "window": 3},
    "rerope": {"window": 5, "leak": 0.25, "log_scale": False}, "string": {"window": 6, "local": 2},
}  # fmt: skip


def test_every_encoding_that_replaces_rope_is_among_them():
    known = {name for name, one in registry.encodings.all().items() if one.builtin and "rope" in one.replaces}
    assert known == set(DISTANCES) == set(SCALED)


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize(("scaling", "rope"), SCALINGS, ids=[scaling for scaling, _ in SCALINGS])
def test_each_pair_is_turned_by_its_distance_at_the_scaled_frequency(name, scaling, rope, agree):
    width, original = 32, 16  # those of `formula`
    encoding = registry.encodings.load(name)(
        Size(width, 1, 1, original, True), scaling=scaling, **SCALED[name], **rope
    )
    pos, (q, k) = torch.arange(2 * original), torch.randn(2, 1, 1, 2 * original, width)
    frequency, attention = formula(scaling, original, **rope)
    turned = 2 * len(frequency)
    # Of the dimensions that are turned alone: the others have no attention factor.
    q[..., turned:] = 0
    distance, scale = of_options(name, SCALED[name]), lambda p: attention**2
    expected = scores_by_pairs(q, k, pos, distance, turned, scale_of=scale, frequency=frequency)
    got = scores_of(encoding, q, k, AttentionContext(pos, pos))
    agree(got.tril(), expected.tril(), encoding=name, against=f"a loop over distances, {scaling}")


@pytest.mark.parametrize("name", SCALED)
def test_the_imaginary_part_is_that_of_queries_turned_back_by_a_quarter(name):
    options, pos, length = SCALED[name], torch.arange(12), 6
    q, k = torch.randn(2, 1, 1, 12, D)
    back = torch.cat((q[..., D // 2 :], -q[..., : D // 2]), -1)
    scores = []
    for imaginary, given in ((True, q), (False, back)):
        encoding = registry.encodings.load(name)(Size(D, 1, 1, length, True), imaginary=imaginary, **options)
        context = AttentionContext(pos, pos)
        turned_q, turned_k = encoding.rotate(given, k, context)
        scores.append(encoding.logits(turned_q @ turned_k.mT * D**-0.5, given, k, context).tril())
    torch.testing.assert_close(*scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", SCALED)
@torch.no_grad()
def test_an_imported_model_with_a_scaling_takes_them(name, here):
    publish("llama 3", here / "published")
    run = import_model(read_published("published"), name="ours")
    tokens = torch.randint(300, (1, 60))
    same = zoo.load(run, sets=[f"model.encoding={{name: {name}, {NOTHING_CHANGED[name]}}}"])
    torch.testing.assert_close(same(tokens), zoo.load(run)(tokens), rtol=0, atol=1e-5)
    assert (zoo.load(run, sets=[f"model.encoding={name}"])(tokens) - same(tokens)).abs().max() > 1e-3
    with pytest.raises(InputError, match="dynamic_ntk follows the length of the sequence"):
        zoo.load(run, sets=[f"model.encoding={{name: {name}, scaling: dynamic_ntk}}"])
