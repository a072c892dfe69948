"""Outputs and gradients of every CPU path of attention equal a float64 softmax, at lengths around its blocks.

The lengths lie at the edges of blocks of 64 and 128 queries, where the last block has one query, or two, or
misses one. Two more are drawn from the date, so that each day tries others.
"""

import datetime
import itertools
import random
import statistics

import pytest
import torch

from zoo import registry
from zoo.contract.subject import keep_of, small_model, some_tokens
from zoo.models.kernels import blocked_attention, cpu_attention

TODAY = random.Random(datetime.date.today().toordinal())
LENGTHS = [1, 2, 63, 64, 65, 127, 128, 129, 130, *sorted(TODAY.sample(range(131, 300), 2))]
B, H, D, V = 3, 4, 8, 6


def relative_error(actual, expected):
    return ((actual.double() - expected).norm() / expected.norm().clamp_min(1e-9)).item()


def gradients(out, inputs):
    weights = (torch.arange(out.numel()) % 17 - 8).to(out.dtype) / 8  # exact in bf16
    return torch.autograd.grad((out * weights.view_as(out)).sum(), inputs)


def visible(mask, length):
    """[B or 1,1,T,S], True where a query may see a key."""
    offset = torch.arange(length)[:, None] - torch.arange(length)
    allowed = (offset >= 0) | (mask in ("open", "padded open"))
    if mask == "windowed":
        allowed &= offset < 5
    if mask.startswith("padded"):
        return (allowed & keep_of((0, 1, 4), length)[:, None])[:, None]
    return allowed[None, None]


BIASES = {
    "none": None,
    "one row": lambda queries, keys: (1, H, 1, keys),
    "a row per sequence": lambda queries, keys: (B, H, 1, keys),
    "table": lambda queries, keys: (1, H, queries, keys),
    "table per sequence": lambda queries, keys: (B, H, queries, keys),
    "one table": lambda queries, keys: (1, 1, queries, keys),
    "line": lambda queries, keys: (H, queries + keys - 1),
    "one line": lambda queries, keys: (1, queries + keys - 1),
}
MASKS = ["causal", "open", "windowed", "padded", "padded open"]


def trial(length, bias, mask, key_heads, dtype=torch.float64, past=0):
    """(outputs and gradients of the kernels, those of a plain softmax) of the same random inputs; the second
    output is without gradients.

    `past`: keys before the first query, as with a cache.
    """
    queries, generator = length - past, torch.Generator().manual_seed(length)

    def draw(*shape, dtype=dtype):
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()

    leaves = [draw(B, H, queries, D), draw(B, key_heads, length, D), draw(B, key_heads, length, V)]
    if BIASES[bias] is not None:
        leaves.append(draw(*BIASES[bias](queries, length), dtype=torch.promote_types(dtype, torch.float32)))
    allowed, is_line = visible(mask, length)[..., past:, :], bias.endswith("line")

    def repeat_heads(x):
        return x.repeat_interleave(H // key_heads, 1)

    def blocks(q, k, v, bias=None):
        first = None if mask.endswith("open") else past
        masked = mask not in ("causal", "open") or (past and mask == "causal" and not is_line)
        if masked and bias is not None:
            bias = bias.masked_fill(~allowed, -torch.inf)
        elif masked:
            bias = allowed
        elif is_line and first is not None and not torch.is_grad_enabled():
            bias = bias.masked_fill(torch.arange(bias.shape[1]) >= queries + past, -torch.inf)
        return cpu_attention.attend(
            q, repeat_heads(k), repeat_heads(v), bias, 0.3, first, by_distance=is_line
        )

    def plain(q, k, v, bias=None):
        logits = 0.3 * q @ repeat_heads(k).mT
        if is_line:
            bias = bias[:, torch.arange(length) - torch.arange(queries)[:, None] + queries - 1]
        logits = (logits if bias is None else logits + bias).masked_fill(~allowed, -torch.inf)
        blind = (logits == -torch.inf).all(-1, keepdim=True)
        return logits.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0) @ repeat_heads(v)

    exact = [x.detach().double().requires_grad_() for x in leaves]
    results = []
    for function, inputs in ((blocks, leaves), (plain, exact)):
        out = function(*inputs)
        with torch.no_grad():
            evaluated = function(*inputs)
        results.append([out, evaluated, *gradients(out, inputs)])
    return results


@pytest.mark.parametrize("length", LENGTHS)
def test_blocks_equal_a_plain_softmax(length, monkeypatch):
    wrong = []
    options = itertools.product((False, True), (False, True))
    for number, (bias, mask) in enumerate(itertools.product(BIASES, MASKS)):
        if bias.endswith("line") and mask not in ("causal", "open"):
            continue  # a line is a bias by distance alone
        # Pairwise: weights kept or computed again, sequences in one group or in turn, grouped heads.
        kept, in_turn = next(options, (None, None))
        if kept is None:
            options = itertools.product((False, True), (False, True))
            kept, in_turn = next(options)
        monkeypatch.setattr(blocked_attention, "KEPT_LENGTH", 10**6 if kept else 0)
        monkeypatch.setattr(blocked_attention, "BLOCK_ELEMENTS", 0 if in_turn else 2**21)
        names = "output", "evaluation", "queries", "keys", "values", "bias"
        for key_heads in (H, 2) if number % 3 == 0 else (H,):
            found = trial(length, bias, mask, key_heads, past=number % 2 * (length // 3))
            for name, actual, expected in zip(names, *found, strict=False):
                error = (actual - expected).abs().max().item()
                if not error < 1e-11:
                    wrong.append(
                        f"{bias}, {mask}, {key_heads} key heads, {kept=}, {in_turn=}: {name} {error:.1e}"
                    )
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("bias", ["one row", "a row per sequence", "table", "line"])
def test_the_gradient_of_a_learned_bias_is_exact_beside_bf16(bias):
    for length in (64, 65, 130):
        for mask in ("causal", "open"):
            actual, expected = trial(length, bias, mask, H, torch.bfloat16)
            assert relative_error(actual[-1], expected[-1]) < 1e-5
            assert max(map(relative_error, actual[:-1], expected[:-1])) < 0.01


def learned_biases():
    """Encodings whose parameters are part of the logits."""
    for name in registry.encodings.names():
        description = registry.encodings.describe(name)
        if description.decoder and not description.wrapping:
            model = small_model(name, "decoder", length=257)
            if name != "learned" and any(True for _ in model.encoding.parameters()):
                yield name


@pytest.mark.slow
@pytest.mark.parametrize("name", list(learned_biases()))
def test_bf16_gradients_are_as_accurate_as_those_of_the_reference(name):
    """Root mean square over seeds of the relative error to float64: at most twice the reference kernel's."""
    errors = {"auto": {}, "reference": {}}
    for length, seed in [(64, 0), (65, 1), (130, 2), (257, 3), (65, 4), (129, 5), (63, 6), (257, 7)]:
        exact = bf16_gradients(name, length, seed, "reference", None)
        for kernel, found in errors.items():
            for key, gradient in bf16_gradients(name, length, seed, kernel, torch.bfloat16).items():
                found.setdefault(key, []).append(relative_error(gradient, exact[key]) ** 2)
    ratios = {
        key: (sum(errors["auto"][key]) / sum(reference)) ** 0.5
        for key, reference in errors["reference"].items()
    }
    assert max(ratios.values()) < 2, ratios


def bf16_gradients(name, length, seed, kernel, autocast):
    """The gradients of the encoding's parameters in a small model, of those that have one."""
    model = small_model(
        name, length=257, d_model=32, num_heads=4, kernel=kernel, seed=seed, large_weights=False
    ).train()
    model = model if autocast else model.double()
    parameters = dict(model.encoding.named_parameters())
    tokens = some_tokens(2, length + 1)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast is not None):
        logits = model(tokens[:, :-1])
    logits = logits.float() if autocast else logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return {
        key: gradient
        for key, gradient in zip(parameters, found, strict=True)
        if gradient is not None and gradient.norm() > 1e-9
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "length"), [("xpos", 9), ({"name": "heads", "of": ["xpos", "bam"]}, 13), ("dpb", 13)], ids=str
)
def test_in_bf16_no_gradient_is_noisier_than_by_the_reference_kernel(spec, length):
    """Single gradients differ by a factor of 40 either way, so the median over seeds is compared."""
    ratios = {}
    for seed in range(31):
        row, grads = torch.randint(29, (2, length)), {}
        for kind in ("exact", "reference", "auto"):
            kernel = "auto" if kind == "auto" else "reference"
            model = small_model(spec, seed=seed, kernel=kernel, bias="all")
            model = model.double() if kind == "exact" else model
            with torch.autocast("cpu", torch.bfloat16, enabled=kind != "exact"):
                logits = model(row)[:, :-1]
            logits = logits if kind == "exact" else logits.float()
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), row[:, 1:].flatten()).backward()
            grads[kind] = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        for name, exact in grads["exact"].items():
            auto, reference = (relative_error(grads[kind][name], exact) for kind in ("auto", "reference"))
            ratios.setdefault(name, []).append(auto / max(reference, 1e-6))
    assert max(statistics.median(some) for some in ratios.values()) < 1.5
