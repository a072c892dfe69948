"""Llama, and what the architectures that grew from it share.

Touvron et al. 2023 (arXiv:2302.13971), Grattafiori et al. 2024 (arXiv:2407.21783). Checked against
`transformers` (LlamaForCausalLM).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder
from zoo.pretrained.conditions import WHOLE_ROPE, Model, any_value, called
from zoo.pretrained.config import NONE, NUMBER, REQUIRED, Config
from zoo.pretrained.options import (
    GATES,
    RMSNORM_EPS,
    activation,
    head_width,
    rope,
    windows_of_layers,
    write_rope,
)
from zoo.pretrained.weights import Row

SIZES = dict.fromkeys(
    (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "max_position_embeddings",
    ),
    REQUIRED,
)  # fmt: skip
NO_BIASES = {
    **SIZES, "num_key_value_heads": None, "head_dim": None, "hidden_act": "silu", "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False, "rope_theta": 1e4, "partial_rotary_factor": 1.0, "rope_parameters": None,
    "rope_scaling": None,
}  # fmt: skip
DEFAULTS = NO_BIASES | {"attention_bias": False, "mlp_bias": False}


def read(config: Config, **own: Any) -> Decoder:
    """`own` are keys of `model` that another architecture sets."""
    width, heads = config.take("hidden_size"), config.take("num_attention_heads")
    layers = config.take("num_hidden_layers")
    biases = tuple(bool(config.take(key, kind=bool)) for key in ("attention_bias", "mlp_bias"))
    has_biases = {(False, False): "none", (True, False): "attention", (False, True): "feed_forward"}
    head_dim = config.take("head_dim", kind=(int, NONE))
    if heads and head_dim == width / heads:
        head_dim = None
    kv_heads = config.take("num_key_value_heads", kind=(int, NONE))
    model = {
        "kind": "decoder",
        "encoding": rope(config, config.take("rope_theta", kind=NUMBER)),
        "d_model": width,
        "num_layers": layers,
        "num_heads": heads,
        "num_kv_heads": None if kv_heads == heads else kv_heads,
        "head_dim": head_dim,
        "d_ff": config.take("intermediate_size"),
        "norm": "rmsnorm",
        "norm_eps": config.take("rms_norm_eps", kind=float),
        "activation": activation(config, "hidden_act", GATES),
        "bias": has_biases.get(biases, "all"),
        "tie_embeddings": config.take("tie_word_embeddings", kind=bool),
    }
    length, vocab_size = config.take("max_position_embeddings"), config.take("vocab_size")
    return Decoder(model | own, length, vocab_size)


def rows(model: Model) -> Iterator[Row]:
    width = model["head_dim"] or model["d_model"] // model["num_heads"]
    groups = model["num_kv_heads"] or model["num_heads"]
    sizes = model["num_heads"] * width, groups * width, groups * width
    bias = model["bias"]
    yield Row("tokens.weight", ("model.embed_tokens.weight",))
    for layer in range(model["num_layers"]):
        ours, theirs = f"blocks.{layer}", f"model.layers.{layer}"
        yield Row(f"{ours}.attention_norm.weight", (f"{theirs}.input_layernorm.weight",))
        yield Row(f"{ours}.feed_forward_norm.weight", (f"{theirs}.post_attention_layernorm.weight",))
        qkv = [f"{theirs}.self_attn.{letter}_proj" for letter in "qkv"]
        gate_up = [f"{theirs}.mlp.{name}_proj" for name in ("gate", "up")]
        for kind, has_qkv, has_out, has_mlp in (
            ("weight", True, True, True),
            (
                "bias",
                bias in ("qkv", "attention", "all"),
                bias in ("attention", "all"),
                bias in ("feed_forward", "all"),
            ),
        ):
            if has_qkv:
                yield Row(f"{ours}.attention.qkv.{kind}", tuple(f"{one}.{kind}" for one in qkv), sizes)
            if has_out:
                yield Row(f"{ours}.attention.out.{kind}", (f"{theirs}.self_attn.o_proj.{kind}",))
            if has_mlp:
                halves = model["d_ff"], model["d_ff"]
                yield Row(f"{ours}.feed_forward.up.{kind}", tuple(f"{one}.{kind}" for one in gate_up), halves)
                yield Row(f"{ours}.feed_forward.down.{kind}", (f"{theirs}.mlp.down_proj.{kind}",))
        for letter in "qk" if model["qk_norm"] else "":
            yield Row(f"{ours}.attention.{letter}_norm.weight", (f"{theirs}.self_attn.{letter}_norm.weight",))
    yield Row("final_norm.weight", ("model.norm.weight",))
    if not model["tie_embeddings"]:
        yield Row("head.weight", ("lm_head.weight",))


def write(model: Model, length: int) -> dict[str, Any]:
    encoding = model["encoding"]
    if called(encoding) == "interleave":
        encoding = next(one for one in encoding["pattern"] if one["name"] != "none")
    bias = model.get("bias", "none")
    return {
        "hidden_size": model["d_model"],
        "num_hidden_layers": model["num_layers"],
        "num_attention_heads": model["num_heads"],
        "num_key_value_heads": model["num_kv_heads"] or model["num_heads"],
        "head_dim": head_width(model),
        "intermediate_size": model["d_ff"],
        "hidden_act": "silu",
        "tie_word_embeddings": model["tie_embeddings"],
        "rms_norm_eps": model.get("norm_eps") or RMSNORM_EPS,
        "attention_bias": bias in ("attention", "all"),
        "mlp_bias": bias in ("feed_forward", "all"),
        **write_rope(model, encoding, length),
    }


def write_with_windows(model: Model, length: int) -> dict[str, Any]:
    """The same for those of its kin that have a window in layers of their choice."""
    widths = windows_of_layers(model)
    width = next((one for one in widths if one is not None), None)
    kinds = ["full_attention" if one is None else "sliding_attention" for one in widths]
    window = {"use_sliding_window": width is not None, "sliding_window": width, "layer_types": kinds}
    return write(model, length) | window


TAKES = {
    "norm": ("rmsnorm",),
    "activation": ("swiglu",),
    "num_kv_heads": any_value,
    "head_dim": any_value,
    "d_ff": any_value,
    "norm_bias": any_value,  # RMSNorm has none
}
BIASES = {"bias": ("none", "attention", "feed_forward", "all")}
ARCHITECTURE = Architecture(
    "Llama", "llama", DEFAULTS, read, rows, "model.", write, TAKES | BIASES, WHOLE_ROPE
)
