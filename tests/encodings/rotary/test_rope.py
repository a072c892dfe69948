"""RoPE against `transformers`, against complex numbers, and the laws of a rotation."""

import cmath
import itertools

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.rope import RoPE

D, T = 16, 11
POS = torch.arange(T)


@pytest.fixture
def rope(size_of):
    return lambda **options: RoPE(size_of(d_model=4 * D, num_heads=4), **options)


def heads(dtype=torch.float32):
    return torch.randn(2, 4, T, D, dtype=dtype), torch.randn(2, 4, T, D, dtype=dtype)


def turn(encoding, q, k, q_pos=POS, k_pos=POS):
    return encoding.rotate(q, k, AttentionContext(q_pos, k_pos))


def test_half_is_the_rotation_of_llama(rope, agree):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    q, k = heads()
    for base in (10000.0, 500000.0):
        config = llama.LlamaConfig(
            hidden_size=4 * D,
            num_attention_heads=4,
            rope_parameters={"rope_type": "default", "rope_theta": base},
        )
        cos, sin = llama.LlamaRotaryEmbedding(config)(q, POS[None])
        expected = llama.apply_rotary_pos_emb(q, k, cos, sin)
        for got, right in zip(turn(rope(base=base), q, k), expected, strict=True):
            agree(got, right, encoding="rope", against="transformers LlamaRotaryEmbedding", atol=1e-6)


def test_partial_is_the_rotation_of_gpt_neox(rope, agree):
    neox = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox")
    q, k = heads()
    for partial in (0.25, 0.5):
        config = neox.GPTNeoXConfig(
            hidden_size=4 * D,
            num_attention_heads=4,
            rope_parameters={
                "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": partial,
            },
        )  # fmt: skip
        cos, sin = neox.GPTNeoXRotaryEmbedding(config)(q, POS[None])
        expected = neox.apply_rotary_pos_emb(q, k, cos, sin)
        got = turn(rope(partial=partial), q, k)
        for one, right in zip(got, expected, strict=True):
            agree(one, right, encoding="rope", against="transformers GPTNeoXRotaryEmbedding", atol=1e-6)
        assert torch.equal(got[0][..., int(partial * D) :], q[..., int(partial * D) :])


def test_interleaved_is_a_product_with_complex_numbers(rope, agree):
    q, k = heads()
    expected = torch.empty_like(q)
    for p in range(T):
        for pair in range(D // 2):
            by = cmath.exp(1j * p * 10000 ** (-2 * pair / D))
            for b, h in itertools.product(range(2), range(4)):
                a = complex(*q[b, h, p, 2 * pair : 2 * pair + 2].tolist()) * by
                expected[b, h, p, 2 * pair], expected[b, h, p, 2 * pair + 1] = a.real, a.imag
    got = turn(rope(layout="interleaved"), q, k)[0]
    agree(got, expected, encoding="rope", against="a product of complex numbers")


@pytest.mark.parametrize("half", [True, False])
def test_the_imaginary_part_of_the_products_whose_real_part_is_rope(half, rope, agree):
    (q, k), rotated = heads(torch.float64), D // 2
    places = torch.arange(rotated).view(2, -1) if half else torch.arange(rotated).view(-1, 2).T
    frequency = 10000.0 ** (-2 * torch.arange(rotated // 2, dtype=torch.float64) / rotated)
    one, other = (torch.complex(x[..., places[0]], x[..., places[1]]) for x in (q, k))
    phase = torch.exp(1j * (POS[:, None] - POS)[..., None] * frequency)
    products = torch.einsum("bhtk,bhsk,tsk->bhts", one, other.conj(), phase)
    rest = q[..., rotated:] @ k[..., rotated:].mT
    for imaginary, part in ((False, products.real), (True, products.imag)):
        encoding = rope(imaginary=imaginary, partial=0.5, layout="half" if half else "interleaved")
        turned_q, turned_k = turn(encoding, q, k)
        agree(
            turned_q @ turned_k.mT, part + rest,
            encoding="rope imaginary", against="products of complex numbers in float64",
        )  # fmt: skip


@pytest.mark.parametrize("scaling", ["none", "dynamic_ntk", "yarn", "longrope", "proportional"])
def test_autocast_and_a_model_in_bf16_leave_the_angles_alone(scaling, rope):
    options = {"scaling": scaling, "factor": 1.0 if scaling == "none" else 4.0}
    encoding = rope(**options)
    pos = torch.arange(100_000, 100_000 + 40)
    exact = encoding.cos_sin(pos, pos)
    with torch.autocast("cpu", torch.bfloat16):
        for got, right in zip(rope(**options).bfloat16().cos_sin(pos, pos), exact, strict=True):
            assert got.dtype == torch.float32
            assert torch.equal(got, right)
