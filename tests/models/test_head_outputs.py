"""Shift of keys and values, norm and gate of outputs: loops over formulas, published code, and the laws."""

import math

import pytest
import torch
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention, Qwen3NextConfig

OPTIONS = {
    "headwise": {"output_gate": "headwise"},
    "elementwise, shared keys": {"output_gate": "elementwise", "num_kv_heads": 2},
    "shift": {"kv_shift": True},
    "shift, shared keys, norm": {"kv_shift": True, "num_kv_heads": 2, "head_norm": True, "norm_eps": 1e-3},
    "all of FoX (Pro)": {
        "kv_shift": True, "qk_norm": True, "head_norm": True, "output_gate": "elementwise", "norm_eps": 1e-6,
    },
    "none of them": {},
}  # fmt: skip


def normed(vector, gain, eps):
    return vector / (vector.square().mean() + eps).sqrt() * gain


def attended(layer, x, keep=None, documents=None, window=None):
    """An attention layer without positions, token by token, from its weights: [B,T,E]."""
    heads, groups, width = layer.num_heads, layer.num_kv_heads, layer.head_dim
    weight_q, weight_k, weight_v = (
        rows.unflatten(0, (-1, width))
        for rows in layer.qkv.weight.split([heads * width, groups * width, groups * width])
    )
    batch, length, _ = x.shape
    outs = torch.zeros(batch, length, heads, width, dtype=x.dtype)
    for b in range(batch):

        def projected(rows, j, share, b=b):
            """The key or value of a token, mixed with that of the token before."""
            if layer.kv_shift is None:
                return rows @ x[b, j]
            alone = j == 0 or (keep is not None and not keep[b, j - 1])
            alone = alone or (documents is not None and documents[b, j] != documents[b, j - 1])
            share = 1 / (1 + (-(layer.kv_shift.weight[share] @ x[b, j])).exp())
            return (0 if alone else share * (rows @ x[b, j - 1])) + (1 - share) * (rows @ x[b, j])

        def visible(i, j, b=b):
            kept = keep is None or bool(keep[b, j])
            together = documents is None or documents[b, i] == documents[b, j]
            return j <= i and kept and together and (window is None or i - j < window)

        for h in range(heads):
            g = h // (heads // groups)
            for i in range(length):
                seen = [j for j in range(length) if visible(i, j)]
                if not seen:
                    continue
                query, keys = weight_q[h] @ x[b, i], [projected(weight_k[g], j, g) for j in seen]
                if layer.q_norm is not None:
                    query = normed(query, layer.q_norm.weight, layer.q_norm.eps)
                    keys = [normed(key, layer.k_norm.weight, layer.k_norm.eps) for key in keys]
                shares = torch.stack([query @ key / math.sqrt(width) for key in keys]).softmax(0)
                out = sum(
                    s * projected(weight_v[g], j, groups + g) for s, j in zip(shares, seen, strict=True)
                )
                if layer.head_norm is not None:
                    gain = layer.head_norm.weight.unflatten(0, (heads, width))[h]
                    out = normed(out, gain, layer.head_norm.eps)
                if layer.output_gate is not None:
                    gates = layer.output_gate.weight.unflatten(0, (heads, -1))[h]
                    out = out / (1 + (-(gates @ x[b, i])).exp())
                outs[b, i, h] = out
    return outs.flatten(2) @ layer.out.weight.T


def watched(layer):
    """A list that takes the input and the output of a layer at each call."""
    seen = []
    layer.register_forward_hook(lambda _, given, out: seen.append((given[0], out)))
    return seen


@pytest.mark.parametrize("name", OPTIONS)
def test_the_output_of_attention_is_that_of_the_formula(name, model_of):
    length = 7
    keep = torch.arange(length) >= torch.tensor([[0], [3]])
    documents = torch.tensor([[0, 0, 0, 3, 3, 3, 3], [0, 1, 1, 1, 1, 5, 5]])
    for masks, window in (({}, None), ({}, 3), ({"keep": keep}, None), ({"documents": documents}, 3)):
        model = model_of("none", num_layers=1, window=window, **OPTIONS[name]).double()
        layer = model.blocks[0].attention
        calls = watched(layer)
        with torch.no_grad():
            model(torch.randint(29, (2, length)), **masks)
            ((given, got),) = calls
            expected = attended(layer, given, window=window, **masks)
        seen = masks.get("keep", torch.ones(2, length, dtype=torch.bool))
        torch.testing.assert_close(got[seen], expected[seen], rtol=0, atol=1e-12)


def test_the_gate_is_that_of_qwen3_next(model_of):
    """Its projection of queries has the rows of the gates too, head by head."""
    heads, groups, width, size = 6, 2, 8, 48
    config = Qwen3NextConfig(
        hidden_size=size, num_attention_heads=heads, num_key_value_heads=groups, head_dim=width,
        attention_bias=False, rms_norm_eps=1e-6, attn_implementation="eager",
    )  # fmt: skip
    theirs = Qwen3NextAttention(config, 0).double().eval()
    model = model_of(
        "none", num_layers=1, num_kv_heads=groups, qk_norm=True, norm_eps=1e-6, output_gate="elementwise"
    ).double()
    ours, gated = model.blocks[0].attention, theirs.q_proj.weight.unflatten(0, (heads, 2, width))
    with torch.no_grad():
        query, key, value = ours.qkv.weight.split([heads * width, groups * width, groups * width])
        gated[:, 0] = query.unflatten(0, (heads, width))
        gated[:, 1] = ours.output_gate.weight.unflatten(0, (heads, width))
        theirs.k_proj.weight.copy_(key)
        theirs.v_proj.weight.copy_(value)
        theirs.o_proj.weight.copy_(ours.out.weight)
        theirs.q_norm.weight.copy_(ours.q_norm.weight - 1)  # theirs is kept less 1
        theirs.k_norm.weight.copy_(ours.k_norm.weight - 1)
        calls = watched(ours)
        model(torch.randint(29, (2, 11)))
        ((given, got),) = calls
        later = torch.full((11, 11), -torch.inf, dtype=torch.float64).triu(1)
        unturned = torch.ones(2, 11, width).double(), torch.zeros(2, 11, width).double()
        expected = theirs(given, unturned, later[None, None])[0]
    # Their norms are computed in float32.
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
