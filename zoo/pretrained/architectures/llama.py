"""Llama, and what the architectures that grew from it share.

Touvron et al. 2023 (arXiv:2302.13971), Grattafiori et al. 2024 (arXiv:2407.21783).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder, Row, rows_of
from zoo.pretrained.config import NONE, NUMBER, REQUIRED, Config
from zoo.pretrained.options import (
    GATES,
    WHOLE_ROPE,
    Model,
    activation,
    any_value,
    called,
    head_width,
    read_named,
    rope,
    write_named,
    write_rope,
)

NAMES = {
    "d_model": ("hidden_size",), "num_layers": ("num_hidden_layers",), "num_heads": ("num_attention_heads",),
    "d_ff": ("intermediate_size",), "norm_eps": ("rms_norm_eps",), "tie_embeddings": ("tie_word_embeddings",),
}  # fmt: skip
SIZES = dict.fromkeys(
    ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
     "max_position_embeddings"), REQUIRED
)  # fmt: skip
NO_BIASES = {
    **SIZES, "num_key_value_heads": None, "head_dim": None, "hidden_act": "silu", "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False, "rope_theta": 1e4, "partial_rotary_factor": 1.0, "rope_parameters": None,
    "rope_scaling": None,
}  # fmt: skip
DEFAULTS = NO_BIASES | {"attention_bias": False, "mlp_bias": False}


def read(config: Config, **own: Any) -> Decoder:
    """`own` are keys of `model` that another architecture sets."""
    model = {"kind": "decoder", "norm": "rmsnorm"} | read_named(config, NAMES)
    heads, head_dim = model["num_heads"], config.take("head_dim", kind=(int, NONE))
    kv_heads = config.take("num_key_value_heads", kind=(int, NONE))
    biases = tuple(bool(config.take(key, kind=bool)) for key in ("attention_bias", "mlp_bias"))
    has_biases = {(False, False): "none", (True, False): "attention", (False, True): "feed_forward"}
    model |= {
        "encoding": rope(config, config.take("rope_theta", kind=NUMBER)),
        "num_kv_heads": None if kv_heads == heads else kv_heads,
        "head_dim": None if heads and head_dim == model["d_model"] / heads else head_dim,
        "activation": activation(config, "hidden_act", GATES),
        "bias": has_biases.get(biases, "all"),
    }
    length, vocab_size = config.take("max_position_embeddings"), config.take("vocab_size")
    return Decoder(model | own, length, vocab_size)


OF_ATTENTION, OF_MLP = ["attention.qkv", "attention.out"], ["feed_forward.up", "feed_forward.down"]
HAVE_BIAS = {
    "none": [], "qkv": OF_ATTENTION[:1], "attention": OF_ATTENTION, "feed_forward": OF_MLP,
    "all": OF_ATTENTION + OF_MLP,
}  # fmt: skip


def rows(model: Model) -> Iterator[Row]:
    width = head_width(model)
    groups = model["num_kv_heads"] or model["num_heads"]
    outside = {
        "tokens.weight": "model.embed_tokens.weight", "final_norm.weight": "model.norm.weight",
        "head.weight": "lm_head.weight",
    }  # fmt: skip
    names = [
        "input_layernorm", "post_attention_layernorm", tuple(f"self_attn.{one}_proj" for one in "qkv"),
        "self_attn.o_proj", ("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj",
    ]  # fmt: skip
    names += ["self_attn.q_norm", "self_attn.k_norm"] if model["qk_norm"] else []
    sizes = {
        "attention.qkv": (model["num_heads"] * width, groups * width, groups * width),
        "feed_forward.up": (model["d_ff"], model["d_ff"]),
    }
    return rows_of(model, outside, "model.layers.{}", names, HAVE_BIAS[model["bias"]], sizes)


def write(model: Model, length: int) -> dict[str, Any]:
    encoding = model["encoding"]
    if called(encoding) == "interleave":
        encoding = next(one for one in encoding["pattern"] if one["name"] != "none")
    return write_named(model, NAMES) | {
        "num_key_value_heads": model["num_kv_heads"] or model["num_heads"],
        "head_dim": head_width(model),
        "hidden_act": "silu",
        "attention_bias": model["bias"] in ("attention", "all"),
        "mlp_bias": model["bias"] in ("feed_forward", "all"),
        **write_rope(model, encoding, length),
    }


def write_with_windows(model: Model, length: int) -> dict[str, Any]:
    """The same for those of its kin that have a window in layers of their choice."""
    pattern = model["window"] if isinstance(model["window"], list | tuple) else [model["window"]]
    widths = [pattern[layer % len(pattern)] for layer in range(model["num_layers"])]
    width = next((one for one in widths if one is not None), None)
    kinds = ["full_attention" if one is None else "sliding_attention" for one in widths]
    window = {"use_sliding_window": width is not None, "sliding_window": width, "layer_types": kinds}
    return write(model, length) | window


TAKES = {
    "norm": ("rmsnorm",), "activation": ("swiglu",), "num_kv_heads": any_value, "head_dim": any_value,
    "d_ff": any_value,
    "norm_bias": any_value,  # RMSNorm has none
}  # fmt: skip
BIASES = {"bias": ("none", "attention", "feed_forward", "all")}
ARCHITECTURE = Architecture(
    "Llama", "llama", DEFAULTS, read, rows, "model.", write, TAKES | BIASES, WHOLE_ROPE
)
