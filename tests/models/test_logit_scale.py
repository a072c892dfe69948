"""Scaled logits equal the formulas of the papers on every path; n is the number of keys that a query sees."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from layouts import MASKS, B, D, H, context_with, gradients, heads, softmax, visible

from zoo.encodings.stack import LayerEncodings, build_encoding
from zoo.errors import InputError
from zoo.models.attention import Attention
from zoo.models.logit_scale import AdaptiveScale, LogScale, TemperatureScale
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms
from zoo.recipe import resolve
from zoo.recipe.schema import ModelConfig
from zoo.runs.card import parameter_counts
from zoo.tasks import build_task
from zoo.training.module import TaskModule

# One for each hook that changes the logits, and a bias that excludes keys.
SPECS = {
    "none": "none",
    "rotate": "rope",
    "bias": "alibi",
    "learned bias": "t5",
    "closed to one side": {"name": "alibi", "form": "one_sided"},
    "score": "transformer_xl",
    "score of features": "fox",
    "logits": "cope",
    "value": "shaw",
    "several": ["rope", "alibi"],
}


def learned_scale():
    """Another s in each head, one of them negative."""
    scale = LogScale("scalable_softmax", H).double()
    with torch.no_grad():
        scale.s.copy_(torch.tensor([0.168, 0.9, -0.4, 1.7]))
    return scale


def encodings_of(specs, size_of, causal):
    specs = specs if isinstance(specs, list) else [specs]
    made = [build_encoding(spec, size_of(d_model=H * D, num_heads=H, causal=causal)) for spec in specs]
    for parameter in (p for encoding in made for p in encoding.parameters()):
        torch.nn.init.normal_(parameter)
    return [encoding.double() for encoding in made]


def same(actual, expected, atol, what):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol, msg=lambda text: f"{what}: {text}")


def plain(q, k, v, view, contexts, s):
    """softmax of s log n times the logits; s [H,1,1]. A key that a bias excludes counts into n."""
    scores = ScoreTerms(view, contexts, content=(q, k))
    added = scores.added(q, k)
    turned_q, turned_k = view.rotate(q, k, contexts)
    logits = turned_q @ turned_k.mT / math.sqrt(D)
    logits = scores.logits(logits if added is None else logits + added, q, k)
    seen = visible(contexts[0])
    excluded = logits == -torch.inf
    factor = s * seen.sum(-1, keepdim=True).clamp(min=1).double().log()
    weights = softmax(logits.masked_fill(excluded, 0.0) * factor, seen & ~excluded)
    out, extra = weights @ v, scores.value(weights)
    return out if extra is None else out + extra


@pytest.mark.parametrize("hook", SPECS)
def test_outputs_and_gradients_are_those_of_the_formula(hook, size_of):
    for mask, options in MASKS.items():
        context = context_with(**options)
        if hook in ("score of features", "logits") and not context.causal:
            continue  # for decoders only
        view = LayerEncodings(encodings_of(SPECS[hook], size_of, context.causal))
        x = torch.randn(B, context.num_keys, H * D, dtype=torch.float64)
        contexts = [
            context if r is None else type(context)(**{**vars(context), "features": r.double()})
            for encoding in view.encodings
            for r in [encoding.read(x)]
        ]
        q, k, v = heads(context.num_queries, context.num_keys)
        if view.valued:
            v = v[..., :D].detach().requires_grad_()
        scale = learned_scale()
        inputs = [q, k, v, scale.s, *(p for encoding in view.encodings for p in encoding.parameters())]
        expected = plain(q, k, v, view, contexts, scale.s[:, None, None])
        exact = gradients(expected, inputs)
        for kernel in ("auto",) if view.reshaped or view.valued else ("sdpa", "reference"):

            def attended(scale, kernel=kernel, view=view, contexts=contexts, q=q, k=k, v=v):
                scores = ScoreTerms(view, contexts, content=(q, k), row_scale=scale(contexts[0], q.dtype))
                return attend(*view.rotate(q, k, contexts), v, scores, D**-0.5, kernel)

            got = attended(scale)
            for one, other in zip((got, *gradients(got, inputs)), (expected, *exact), strict=True):
                assert (one is None) == (other is None)
                if one is not None:
                    same(one, other, 1e-9, f"{mask}, {kernel}")
            same(attended(LogScale("log_n", H)), plain(q, k, v, view, contexts, 1.0), 1e-10, mask)


def test_layers_with_different_windows_have_different_factors():
    """The contexts of one forward pass share what they compute."""
    wide = context_with(**MASKS["left padding"])
    for context in (wide, replace(wide, window=3)):
        expected = visible(context).sum(-1).clamp(min=1).double().log()
        assert torch.equal(LogScale("log_n", H)(context, torch.float64).factor_BHT1[..., 0], expected)


# The adaptive factor.


def test_the_adaptive_factor_is_that_of_the_formula():
    x = torch.randn(B, 9, 8, dtype=torch.float64)
    scale = AdaptiveScale(8, H, bias=True).double().requires_grad_(False)
    for mask, options in MASKS.items():
        context = context_with(**options)
        read = x[:, context.query_offset :]
        factor = scale(context, torch.float64, read).factor_BHT1
        n = visible(context).sum(-1)[:, 0].clamp(min=1)
        for b, h, i in torch.cartesian_prod(*map(torch.arange, factor.shape[:3])).tolist():
            beta, gamma = (
                float(one.weight[h] @ read[b, i] + one.bias[h]) for one in (scale.beta, scale.gamma)
            )
            expected = 1 + math.log1p(math.exp(beta)) * math.log(n[b, i] + 1) ** (2 * math.tanh(gamma))
            assert factor[b, h, i, 0].item() == pytest.approx(expected, rel=1e-12), mask


NAPE = {"name": "heads", "of": [{"name": "alibi", "slopes": "harmonic"}, "none"]}


def test_asentmax_scales_the_heads_of_nape_without_positions(size_of):
    """Attention of deep-spin/asentmax, `sparse_gemma.py`, written as a loop: slopes 1/h and no scale in the
    first heads, a scale from the layer's input and no bias in the others, and entmax with alpha = 1.5."""
    E, T = H * D, 9
    scale = {"name": "adaptive", "heads": "without_positions", "bias": True}
    config = ModelConfig(
        kind="decoder", encoding=[NAPE, "entmax"], d_model=E, num_layers=1, num_heads=H, logit_scale=scale
    )
    attention, x = Attention(config).double(), torch.randn(B, T, E, dtype=torch.float64)
    with torch.no_grad():
        attention.qkv.weight.mul_(4)
    size = size_of(d_model=E, num_heads=H)
    layer = LayerEncodings([build_encoding(spec, size).double() for spec in config.encoding])
    context = type(context_with())(torch.arange(T), torch.arange(T))
    ((_, weights),) = attention.weight_blocks(x, layer, [context] * 2, rows=T)
    beta, gamma = attention.logit_scale.beta(x), attention.logit_scale.gamma(x)
    q, k, _ = (part.unflatten(-1, (H, D)) for part in attention.qkv(x).split(E, -1))
    for b, h, i in torch.cartesian_prod(*map(torch.arange, (B, H, T))).tolist():
        z = torch.stack([q[b, i, h] @ k[b, j, h] for j in range(i + 1)]) / math.sqrt(D)
        if h < H // 2:
            z = z - torch.arange(i, -1, -1) / (h + 1)
        else:
            z = z * (1 + F.softplus(beta[b, i, h]) * math.log(i + 2) ** (2 * torch.tanh(gamma[b, i, h])))
        low, high = z.max() / 2 - 1, z.max() / 2
        for _ in range(60):  # the sum of the weights falls as tau rises
            tau = (low + high) / 2
            low, high = (tau, high) if (z / 2 - tau).relu().square().sum() > 1 else (low, tau)
        expected = F.pad((z / 2 - tau).relu().square(), (0, T - 1 - i))
        same(weights[b, h, i], expected, 1e-6, f"{b}, {h}, {i}")


def test_heads_and_layers_without_positions(model_of, tokens):
    """A scale of these alone changes nothing in a model where every head reads positions, and acts in all
    heads where none does."""
    row, alone = tokens(2, 13), {"name": "adaptive", "heads": "without_positions"}
    for spec, equal in (("rope", "none"), ("fox", "adaptive"), (["sinusoidal", "none"], "none")):
        one, other = model_of(spec, logit_scale=alone), model_of(spec, logit_scale=equal)
        other.load_state_dict(one.state_dict(), strict=False)
        assert torch.equal(one(row), other(row)), spec
    for spec, layers in (
        ({"name": "randomized", "of": NAPE}, [[True] * 3 + [False] * 3] * 2),
        ({"name": "interleave", "pattern": ["rope", "none"]}, [[True] * 6, [False] * 6]),
        ([NAPE, "sinusoidal"], [[True] * 6] * 2),
    ):
        encoding = model_of(spec, logit_scale=alone).encoding
        assert [encoding.layer(layer).heads_with_positions for layer in range(2)] == layers


# The temperature.


@pytest.mark.parametrize("name", ["llama4", "ministral3"])
def test_the_temperature_is_that_of_transformers(name):
    length = 3
    scale = TemperatureScale(0.1, length, offset=int(name == "llama4"))
    context = type(context_with())(torch.arange(40), torch.arange(40))
    factor = scale(context, torch.float32).factor_BHT1[0, 0, :, 0]
    if name == "ministral3":
        module = pytest.importorskip("transformers.models.ministral3.modeling_ministral3")
        expected = module.get_llama_4_attn_scale(torch.arange(40)[None], 0.1, length).flatten()
    else:
        module = pytest.importorskip("transformers.models.llama4.modeling_llama4")
        config = module.Llama4TextConfig(
            hidden_size=8, num_attention_heads=1, num_key_value_heads=1, head_dim=8, num_hidden_layers=1,
            no_rope_layers=[0], floor_scale=length, attn_scale=0.1, use_qk_norm=False,
        )  # fmt: skip
        queries, attention, x = [], module.Llama4TextAttention(config, 0), torch.randn(1, 40, 8)
        module.ALL_ATTENTION_FUNCTIONS.register(
            "kept", lambda _, q, k, v, *a, **o: (queries.append(q) or q, q)
        )
        config._attn_implementation = "kept"
        attention(x, (None, None), None)
        expected = (queries[0][0, 0] / attention.q_proj(x)[0]).mean(-1)
    torch.testing.assert_close(factor, expected, rtol=1e-6, atol=0)
    assert factor.unique().numel() == 40 // length + 1


# s, as a parameter of the model.


def test_s_starts_where_the_paper_s_does_and_every_other_weight_as_without(model_of):
    plain, scaled = (
        dict(model_of("t5", large_weights=False, logit_scale=kind).named_parameters())
        for kind in ("none", "scalable_softmax")
    )
    own = {name: p for name, p in scaled.items() if name not in plain}
    assert list(own) == [f"blocks.{layer}.attention.logit_scale.s" for layer in range(2)]
    for p in own.values():
        assert p.shape == (6,) and (p == 0.168).all()
    assert all(torch.equal(scaled[name], p) for name, p in plain.items())
    # The paper's number: over 1024 trained positions s log n is 1 in the mean.
    assert 1 / torch.arange(1, 1025).log().mean().item() == pytest.approx(0.168, abs=1e-3)
    assert not [name for name, _ in model_of("t5", logit_scale="log_n").named_parameters() if "scale" in name]


def test_s_is_no_parameter_of_the_encoding_and_does_not_decay(recipe):
    task, plain = (
        build_task(recipe("text", f"model.logit_scale={kind}"), 300) for kind in ("scalable_softmax", "none")
    )
    s = [p for name, p in task.model.named_parameters() if name.endswith("logit_scale.s")]
    counts, before = parameter_counts(task.model), parameter_counts(plain.model)
    # One layer of two heads.
    assert len(s) == 1 and counts == {**before, "other": before["other"] + 2, "total": before["total"] + 2}
    matrices, vectors = TaskModule(task).configure_optimizers()["optimizer"].param_groups
    assert any(p is s[0] for p in vectors["params"]) and vectors["weight_decay"] == 0
    assert not any(p is s[0] for p in matrices["params"])


# The recipe.


def test_the_recipe_key(recipe):
    assert recipe("text").model.logit_scale == "none"
    chosen = recipe("text", "model.logit_scale=log_n")
    assert resolve(chosen.as_dict()) == chosen == recipe("text", "model.logit_scale={name: log_n}")
    # One spelling each: a mapping with all options where there are any.
    for given in ("adaptive", "{name: adaptive}", "{name: adaptive, heads: all}"):
        of_model = recipe("text", f"model.logit_scale={given}").as_dict()["model"]
        assert of_model["logit_scale"] == {"name": "adaptive", "heads": "all", "bias": False}
    for given, key in (("log_m", ""), ("{name: adaptve}", ""), ("{name: adaptive, head: all}", r"\.head")):
        with pytest.raises(InputError, match=rf"model\.logit_scale{key}: .*did you mean '"):
            recipe("text", f"model.logit_scale={given}")
