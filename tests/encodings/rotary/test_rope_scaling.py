"""The scalings of RoPE against ROPE_INIT_FUNCTIONS of `transformers` and a loop over each formula."""

import math

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.rope import RoPE
from zoo.models.cache import Cache

D, H, L = 32, 4, 16
LENGTHS = (7, L, 2 * L + 1)
"""Within, at and beyond the trained length."""
SHORT = [1 + 0.1 * k for k in range(D // 2)]
LONG = [1 + 0.5 * k for k in range(D // 2)]

# The scaling, its options here, and its name and options in `transformers`.
CASES = [
    ("none", {}, "default", {}),
    ("linear", {"factor": 4.0}, "linear", {"factor": 4.0}),
    ("dynamic_ntk", {"factor": 4.0}, "dynamic", {"factor": 4.0}),
    ("dynamic_ntk", {"factor": 1.0}, "dynamic", {"factor": 1.0}),
    ("yarn", {"factor": 4.0}, "yarn", {"factor": 4.0}),
    ("yarn", {"factor": 4.0, "base": 500.0}, "yarn", {"factor": 4.0, "rope_theta": 500.0}),
    # Even the slowest pair turns: the ramp ends beyond the last one.
    ("yarn", {"factor": 4.0, "base": 1.5}, "yarn", {"factor": 4.0, "rope_theta": 1.5}),
    (
        "yarn",
        {"factor": 8.0, "beta_fast": 3.0, "beta_slow": 0.5, "attention_factor": 1.3, "truncate": False},
        "yarn",
        {"factor": 8.0, "beta_fast": 3.0, "beta_slow": 0.5, "attention_factor": 1.3, "truncate": False},
    ),
    (
        "longrope",
        {"factor": 4.0, "short_factor": SHORT, "long_factor": LONG},
        "longrope",
        {"factor": 4.0, "short_factor": SHORT, "long_factor": LONG},
    ),
    (
        "longrope",
        {"factor": 4.0, "attention_factor": 1.1},
        "longrope",
        {"factor": 4.0, "attention_factor": 1.1, "short_factor": [1.0] * 16, "long_factor": [4.0] * 16},
    ),
    ("llama3", {"factor": 8.0}, "llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    (
        "llama3",
        {"factor": 8.0, "low_freq_factor": 0.25, "high_freq_factor": 2.0},
        "llama3",
        {"factor": 8.0, "low_freq_factor": 0.25, "high_freq_factor": 2.0},
    ),
    *[
        ("proportional", {"proportion": p}, "proportional", {"partial_rotary_factor": p})
        for p in (0.0, 0.25, 0.7, 1.0)
    ],
    (
        "proportional",
        {"proportion": 0.5, "factor": 2.0},
        "proportional",
        {"partial_rotary_factor": 0.5, "factor": 2.0},
    ),
    ("linear", {"factor": 4.0, "partial": 0.5}, "linear", {"factor": 4.0, "partial_rotary_factor": 0.5}),
    ("yarn", {"factor": 4.0, "partial": 0.5}, "yarn", {"factor": 4.0, "partial_rotary_factor": 0.5}),
]


def names(value):
    return value if isinstance(value, str) else ""


@pytest.fixture
def rope(size_of):
    return lambda **options: RoPE(size_of(d_model=H * D, num_heads=H, length=L), **options)


def heads(length, batch=2):
    return torch.randn(2, batch, H, length, D)


def turned(encoding, q, k, pos):
    return encoding.rotate(q, k, AttentionContext(pos, pos))


def llama(name, given):
    """The rotation of `transformers` for a model trained on L tokens."""
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    parameters = {"rope_type": name, "rope_theta": 10000.0, **given}
    if name in ("yarn", "longrope", "llama3"):
        parameters["original_max_position_embeddings"] = L
    config = modeling.LlamaConfig(
        hidden_size=H * D, num_attention_heads=H, max_position_embeddings=L, rope_parameters=parameters
    )
    return modeling.LlamaRotaryEmbedding(config)


def apply_llama(rotary, q, k, pos):
    """Rotated q and k; dimensions without a frequency are copied."""
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    cos, sin = rotary(q, pos[None])
    width = cos.shape[-1]
    sides = modeling.apply_rotary_pos_emb(q[..., :width], k[..., :width], cos, sin)
    return [torch.cat((side, x[..., width:]), -1) for side, x in zip(sides, (q, k), strict=True)]


def formula(scaling, length, *, base=10000.0, factor=1.0, partial=1.0, proportion=1.0, **given):
    """The frequencies, pair by pair, for a sequence of `length`, and the factor of cos and sin."""
    width = round(partial * D)
    out, attention = [], 1.0
    for k in range(width // 2):
        f = base ** (-2 * k / width)
        turns = L * f / (2 * math.pi)
        if scaling == "linear":
            f /= factor
        elif scaling == "ntk":
            f = (base * factor ** (width / (width - 2))) ** (-2 * k / width)
        elif scaling == "dynamic_ntk" and length > L:
            s = 1 + factor * (length / L - 1)
            f = (base * s ** (width / (width - 2))) ** (-2 * k / width)
        elif scaling in ("yarn", "resonance"):
            attention = given.get("attention_factor") or 0.1 * math.log(factor) + 1
            # The pairs that turn beta times: base^(-2k/R) L = 2 pi beta.
            fast, slow = (
                width * math.log(L / (2 * math.pi * given.get(beta, default))) / (2 * math.log(base))
                for beta, default in (("beta_fast", 32), ("beta_slow", 1))
            )
            if given.get("truncate", True):
                fast, slow = math.floor(fast), math.ceil(slow)
            fast, slow = max(fast, 0), min(slow, width - 1)
            share = min(1, max(0, (k - fast) / (slow - fast)))
            f = (1 - share) * f + share * f / factor
            if scaling == "resonance":
                f = 2 * math.pi / round(2 * math.pi / f)
        elif scaling == "longrope":
            attention = given.get("attention_factor") or math.sqrt(1 + math.log(factor) / math.log(L))
            short, long = given.get("short_factor"), given.get("long_factor")
            f /= (long[k] if long else factor) if length > L else (short[k] if short else 1)
        elif scaling == "llama3":
            low, high = given.get("low_freq_factor", 1), given.get("high_freq_factor", 4)
            if turns < low:
                f /= factor
            elif turns <= high:
                share = (turns - low) / (high - low)
                f = (1 - share) * f / factor + share * f
        elif scaling == "proportional":
            f /= factor
        out.append(f if k < math.floor(proportion * width / 2) else 0.0)
    return out, attention


def loop(frequency, attention, x, pos):
    """x [B,H,T,D] turned pair by pair, in float64."""
    out, half = x.double().clone(), len(frequency)
    for t, p in enumerate(pos.tolist()):
        for k, f in enumerate(frequency):
            a, b = x[:, :, t, k].double(), x[:, :, t, k + half].double()
            cos, sin = attention * math.cos(p * f), attention * math.sin(p * f)
            out[:, :, t, k], out[:, :, t, k + half] = a * cos - b * sin, a * sin + b * cos
    return out.float()


@pytest.mark.parametrize(("scaling", "options", "name", "given"), CASES, ids=names)
def test_transformers(scaling, options, name, given, rope, agree):
    """The frequencies, the attention factor, and the rotated queries and keys."""
    encoding, rotary = rope(scaling=scaling, **options), llama(name, given)
    proof = {"encoding": f"rope {scaling}", "against": f"transformers rope_type {name}"}
    for length in LENGTHS:
        pos, (q, k) = torch.arange(length), heads(length)
        expected = apply_llama(rotary, q, k, pos)
        for got, right in zip(turned(encoding, q, k, pos), expected, strict=True):
            agree(got, right, **proof)
        # rotary holds the frequencies that the call above left there: those of this length.
        cos, sin = encoding.cos_sin(torch.ones(1), pos)
        agree(torch.atan2(sin, cos)[0], rotary.inv_freq, **proof, atol=1e-6)
        assert encoding.scaling.attention() == pytest.approx(rotary.attention_scaling)


def test_every_rule_of_transformers_is_among_them():
    rules = pytest.importorskip("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    assert set(rules) <= {name for _, _, name, _ in CASES}


FORMULAS = [
    *[(scaling, options) for scaling, options, _, _ in CASES],
    ("ntk", {"factor": 4.0, "partial": 0.5}),
    # Pairs with frequency 0 keep it under every scaling, also beyond the original length.
    ("none", {"proportion": 0.6}),
    ("ntk", {"factor": 4.0, "proportion": 0.6, "partial": 0.5}),
    ("dynamic_ntk", {"factor": 2.0, "proportion": 0.6}),
    ("yarn", {"factor": 4.0, "proportion": 0.6}),
    ("longrope", {"factor": 4.0, "proportion": 0.6}),
    ("resonance", {}),
    ("resonance", {"factor": 4.0, "base": 500.0}),
    ("resonance", {"factor": 8.0, "beta_fast": 3.0, "beta_slow": 0.5, "partial": 0.5, "proportion": 0.6}),
]


@pytest.mark.parametrize("scaling", sorted({scaling for scaling, _ in FORMULAS}))
def test_a_loop_over_the_formula(scaling, rope, agree):
    for options in [options for name, options in FORMULAS if name == scaling]:
        encoding = rope(scaling=scaling, **options)
        for length in LENGTHS:
            pos, (q, k) = torch.arange(length), heads(length, batch=1)
            frequency, attention = formula(scaling, length, **options)
            for got, x in zip(turned(encoding, q, k, pos), (q, k), strict=True):
                agree(
                    got,
                    loop(frequency, attention, x, pos),
                    encoding=f"rope {scaling}",
                    against="a loop over the formula",
                )


@pytest.mark.parametrize(("scaling", "shift"), [("dynamic_ntk", 0), ("longrope", 1000)])
def test_each_sequence_counts_its_own_length(scaling, shift, rope):
    """Next to a longer one, padded, or shifted, a sequence is rotated as when it is alone."""
    attention = {"attention_factor": 1.0} if scaling == "longrope" else {}
    encoding, plain = rope(scaling=scaling, factor=4.0, **attention), torch.arange(2 * L)
    padded = (plain - L).clamp(min=0)
    q, k = heads(2 * L)
    together = turned(encoding, q, k, torch.stack((plain, padded)) + shift)
    long = turned(encoding, q[:1], k[:1], plain + shift)
    short = turned(encoding, q[1:, :, L:], k[1:, :, L:], plain[:L] + shift)
    for side in range(2):
        assert torch.equal(together[side][:1], long[side])
        assert torch.equal(together[side][1:, :, L:], short[side])
    # The long one is scaled, the short one is not.
    assert not torch.equal(long[0], turned(rope(), q[:1], k[:1], plain + shift)[0])
    assert torch.equal(short[0], turned(rope(), q[1:, :, L:], k[1:, :, L:], plain[:L] + shift)[0])


@pytest.mark.parametrize(("scaling", "original", "limit"), [
    ("dynamic_ntk", None, 8), ("dynamic_ntk", 12, 12), ("longrope", 12, 12),
])  # fmt: skip
def test_a_cache_ends_where_the_angles_begin_to_move(scaling, original, limit, model_of, tokens):
    spec = {"name": "rope", "scaling": scaling, "factor": 4.0, "original_length": original}
    model, row = model_of(spec, length=8), tokens(1, limit + 1)
    cache = Cache(model.num_layers)
    steps = [model(part, cache=cache) for part in row[:, :limit].split(3, 1)]
    torch.testing.assert_close(torch.cat(steps, 1), model(row[:, :limit]), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match=f"{limit + 1} tokens with a cache"):
        model(row[:, limit:], cache=cache)
    # The refused token would have changed the outputs of the earlier ones.
    assert (model(row)[:, :limit] - model(row[:, :limit])).abs().max() > 1e-3


def test_yarn_slows_the_slow_pairs_at_any_original_length(rope):
    plain = rope().frequency
    for original in (2, 4, 6, 7, 1000):
        ratio = rope(scaling="yarn", factor=4.0, original_length=original).frequency / plain
        assert (ratio.diff() <= 1e-6).all()
        assert ratio[0] == 1
        assert ratio[-1] == 0.25


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_with_resonance_a_pair_that_has_turned_once_meets_no_new_angle(factor, rope):
    given = {"factor": factor, "original_length": 4 * L, "attention_factor": 1.0}
    resonant = rope(scaling="resonance", **given)
    plain = rope(scaling="yarn", **given)
    wavelength = 2 * math.pi / resonant.frequency
    torch.testing.assert_close(wavelength, wavelength.round(), rtol=1e-6, atol=0)
    assert ((wavelength - 2 * math.pi / plain.frequency).abs() < 0.51).all()
    pos = torch.arange(16 * L)
    points = torch.stack(resonant.cos_sin(pos, pos), -1)[:, wavelength <= 4 * L].transpose(0, 1)
    seen, new = points[:, : 4 * L], points[:, 4 * L :]
    nearest = (new[:, :, None] - seen[:, None]).abs().amax(-1).amin(-1)
    assert len(nearest) > 1 and nearest.max() < 1e-4


@pytest.mark.parametrize("scaling", ["dynamic_ntk", "longrope", "yarn"])
def test_long_sequences_compile_without_a_graph_break(scaling, rope):
    encoding = rope(scaling=scaling, factor=4.0)
    compiled = torch.compile(turned, fullgraph=True, backend="eager")
    for length in (L, 2 * L):
        pos, (q, k) = torch.arange(length), heads(length)
        for got, expected in zip(compiled(encoding, q, k, pos), turned(encoding, q, k, pos), strict=True):
            torch.testing.assert_close(got, expected)
