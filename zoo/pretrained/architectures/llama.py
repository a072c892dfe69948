"""Llama, and the architectures that grew from it: RMS norm, gated feed-forward, RoPE.

Llama (Touvron et al. 2023, arXiv:2302.13971; Grattafiori et al. 2024, arXiv:2407.21783). Mistral (Jiang et
al. 2023, arXiv:2310.06825), with a sliding window. Qwen2 (Yang et al. 2024, arXiv:2407.10671), with biases of
queries, keys and values. Qwen3 (Yang et al. 2025, arXiv:2505.09388), with normalised queries and keys.
SmolLM3, in which some layers have no rotary embedding (arXiv:2501.18795). Gemma 3 (Kamath et al. 2025,
arXiv:2503.19786), with two bases of RoPE, norms of inputs and outputs, and gains kept less 1. OLMo 2 (OLMo
team 2024, arXiv:2501.00656), with norms of outputs, and of queries and keys across heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zoo.pretrained import options
from zoo.pretrained.architecture import Architecture, Condition, Model
from zoo.pretrained.config import NONE, NUMBER, Config

NO_BIASES = {
    **options.SIZES, "num_key_value_heads": None, "head_dim": None, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "rope_theta": 1e4, "partial_rotary_factor": 1.0,
    "rope_parameters": None, "rope_scaling": None,
}  # fmt: skip
OF_LAYER = {
    "attention.qkv": tuple(f"self_attn.{one}_proj" for one in "qkv"), "attention.out": "self_attn.o_proj",
    "feed_forward.up": ("mlp.gate_proj", "mlp.up_proj"), "feed_forward.down": "mlp.down_proj",
    "attention.q_norm": "self_attn.q_norm", "attention.k_norm": "self_attn.k_norm",
}  # fmt: skip


def read(config: Config, model: Model, encoding: Any = None) -> Model:
    heads, head_dim = model["num_heads"], config.take("head_dim", kind=(int, NONE))
    kv_heads = config.take("num_key_value_heads", kind=(int, NONE))
    key = "hidden_act" if "hidden_act" in config.defaults else "hidden_activation"
    return {
        "encoding": encoding or options.rope(config, config.take("rope_theta", kind=NUMBER)),
        "num_kv_heads": None if kv_heads == heads else kv_heads,
        "head_dim": None if heads and head_dim == model["d_model"] / heads else head_dim,
        "activation": options.activation(config, key, options.GATES),
        "bias": model.get("bias", options.biases(config)),
    }


def write(model: Model, length: int) -> dict[str, Any]:
    encoding = model["encoding"]
    if options.called(encoding) == "interleave":
        encoding = next(one for one in encoding["pattern"] if one["name"] != "none")
    return {
        "num_key_value_heads": model["num_kv_heads"] or model["num_heads"],
        "head_dim": options.head_width(model),
        "hidden_act": options.THEIR_GATES[model["activation"]],
        **options.write_biases(model),
        **options.write_rope(model, encoding, length),
    }


def sizes(model: Model) -> dict[str, tuple[int, ...]]:
    width, groups = options.head_width(model), model["num_kv_heads"] or model["num_heads"]
    qkv = (model["num_heads"] * width, groups * width, groups * width)
    return {"attention.qkv": qkv, "feed_forward.up": (model["d_ff"], model["d_ff"])}


LLAMA = Architecture(
    title="Llama",
    model_type="llama",
    defaults=NO_BIASES | {"attention_bias": False, "mlp_bias": False},
    names=options.SIZE_NAMES,
    length=("max_position_embeddings",),
    kept={"norm": "rmsnorm"},
    read_own=read,
    write_own=write,
    takes={
        "activation": tuple(options.THEIR_GATES), "num_kv_heads": options.any_value,
        "head_dim": options.any_value, "bias": ("none", "attention", "feed_forward", "all"),
        "norm_bias": options.any_value,  # RMSNorm has none
    },
    encoding=options.WHOLE_ROPE,
    outside={
        "tokens.weight": "model.embed_tokens.weight", "final_norm.weight": "model.norm.weight",
        "head.weight": "lm_head.weight",
    },
    layer="model.layers.{}",
    modules=OF_LAYER | {
        "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
    },
    prefix="model.",
    sizes=sizes,
)  # fmt: skip


def kin(
    title: str,
    defaults: dict[str, Any],
    takes: Mapping[str, Condition],
    kept: Model | None = None,
    **other: Any,
) -> Architecture:
    """An architecture of Llama's kind, from its differences to Llama."""
    kept, takes = LLAMA.kept | (kept or {}), {**LLAMA.takes, **takes}
    own = {"title": title, "model_type": title.lower(), "defaults": defaults, "takes": takes, "kept": kept}
    return replace(LLAMA, **own | other)


def read_mistral(config: Config, model: Model) -> Model:
    return read(config, model) | {"window": config.take("sliding_window", kind=(int, NONE))}


MISTRAL = kin(
    "Mistral",
    NO_BIASES | {"num_key_value_heads": 8, "sliding_window": 4096},
    {"bias": ("none",), "window": lambda value, model: isinstance(value, int)},
    read_own=read_mistral,
    write_own=lambda model, length: write(model, length) | {"sliding_window": model["window"]},
)


def read_qwen(config: Config, model: Model) -> Model:
    """The first `max_window_layers` layers see all, the others a window."""
    used, first = config.take("use_sliding_window", kind=bool), config.take("max_window_layers")
    width, layers = config.take("sliding_window", kind=(int, NONE)), model["num_layers"]
    width = width if used else None
    sliding = options.sliding_layers(config, width, [layer >= first for layer in range(layers)])
    return read(config, model) | {"window": options.windows(width, sliding)}


def write_types(model: Model, length: int) -> dict[str, Any]:
    """With a window in layers of the model's choice."""
    width, kinds = options.layer_types(model)
    return write(model, length) | {"sliding_window": width, "layer_types": kinds}


def write_windows(model: Model, length: int) -> dict[str, Any]:
    given = write_types(model, length)
    return given | {"use_sliding_window": given["sliding_window"] is not None}


OF_QWEN = NO_BIASES | {
    "num_key_value_heads": 32, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28,
    "layer_types": None,
}  # fmt: skip
QWEN2 = kin(
    "Qwen2",
    OF_QWEN,
    {"bias": ("qkv",), "head_dim": options.own_heads, "window": options.one_width},
    kept={"bias": "qkv"},
    read_own=read_qwen,
    write_own=write_windows,
)
QWEN3 = kin(
    "Qwen3",
    OF_QWEN | {"head_dim": 128, "attention_bias": False},
    {"bias": ("none", "attention"), "window": options.one_width},
    kept={"qk_norm": True},
    read_own=read_qwen,
    write_own=write_windows,
)


def read_smollm3(config: Config, model: Model) -> Model:
    """`no_rope_layers` has a 1 for each layer with rotary embedding, and a 0 for one without."""
    given, layers = read(config, model), model["num_layers"]
    interval, rotary = config.take("no_rope_layer_interval"), config.take("no_rope_layers", kind=(list, NONE))
    if rotary is None:
        rotary = [interval < 1 or (layer + 1) % interval for layer in range(layers)]
    if interval < 1 or len(rotary) != layers:
        key = "no_rope_layers" if interval > 0 else "no_rope_layer_interval"
        config.problem(key, f"{config.values[key]} for {layers} layers")
    used = config.take("use_sliding_window", kind=bool)
    width = config.take("sliding_window", kind=(int, NONE))
    sliding = options.sliding_layers(config, width, [used and not one for one in rotary])
    given["window"] = options.windows(width, sliding)
    given["encoding"] = options.in_turns([given["encoding"] if one else {"name": "none"} for one in rotary])
    return given


def write_smollm3(model: Model, length: int) -> dict[str, Any]:
    rotary = [int(one["name"] != "none") for one in options.of_layers(model["encoding"]["pattern"], model)]
    return write_windows(model, length) | {"no_rope_layers": rotary}


def rope_or_none(model: Model) -> str | None:
    """A test for an encoding that is one rope in some layers and none in the others."""
    encoding = model["encoding"]
    if options.called(encoding) != "interleave" or isinstance(encoding, list):
        return f"encoding is {options.called(encoding)}"
    rotary = [one for one in encoding["pattern"] if one["name"] != "none"]
    if not rotary or any(one != rotary[0] for one in rotary):
        return "its layers are not one rope and none"
    return options.WHOLE_ROPE({"encoding": rotary[0]})


SMOLLM3 = kin(
    "SmolLM3",
    LLAMA.defaults | {
        "num_key_value_heads": 4, "tie_word_embeddings": True, "rope_theta": 2e6, "use_sliding_window": False,
        "sliding_window": None, "layer_types": None, "no_rope_layers": None, "no_rope_layer_interval": 4,
    },
    {"bias": ("none", "attention"), "head_dim": options.own_heads, "window": options.one_width},
    read_own=read_smollm3,
    write_own=write_smollm3,
    encoding=rope_or_none,
)  # fmt: skip


ROPES_OF_GEMMA3 = (
    {"full_attention": "rope_theta", "sliding_attention": "rope_local_base_freq"}, ("full_attention",)
)  # fmt: skip
GEMMA3_WINDOW = 4096
"""The default of `transformers`, which takes a number where no layer has a window."""


def read_gemma3(config: Config, model: Model) -> Model:
    """Layers with a window have a rotary embedding of their own."""
    of_types = options.ropes(config, *ROPES_OF_GEMMA3)
    width = config.take("sliding_window", kind=(int, NONE))
    sliding = options.but_every(config, "sliding_window_pattern", model, 1)
    sliding = options.sliding_layers(config, width, sliding)
    given = read(config, model, options.in_turns([of_types[options.LAYER_TYPES[one]] for one in sliding]))
    scalar = config.take("query_pre_attn_scalar", kind=NUMBER)
    if scalar <= 0:
        config.problem("query_pre_attn_scalar", f"{scalar} has no root to divide by")
    own = scalar <= 0 or scalar == options.head_width(model | given)
    return given | {
        "window": options.windows(width, sliding), "attention_scale": None if own else scalar**-0.5,
    }  # fmt: skip


def write_gemma3(model: Model, length: int) -> dict[str, Any]:
    scale = model["attention_scale"]
    given = write_types(model | {"encoding": options.of_layers(model["encoding"], model)[0]}, length)
    given["hidden_activation"] = given.pop("hidden_act")
    given["query_pre_attn_scalar"] = options.head_width(model) if scale is None else round(scale**-2)
    given["sliding_window"] = given["sliding_window"] or GEMMA3_WINDOW
    return given | options.write_ropes(model, length, *ROPES_OF_GEMMA3)


GEMMA3 = kin(
    "Gemma 3",
    {
        **options.SIZES, "num_key_value_heads": 4, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "attention_bias": False, "layer_types": None,
        "query_pre_attn_scalar": 256, "sliding_window": GEMMA3_WINDOW, "sliding_window_pattern": 6,
        "final_logit_softcapping": None, "attn_logit_softcapping": None, "use_bidirectional_attention": False,
        "rope_parameters": None, "rope_scaling": None, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
    },
    {"bias": ("none", "attention"), "window": options.one_width, "attention_scale": options.root_of_integer},
    kept={"norm_position": "both", "qk_norm": True, "embedding_scale": "sqrt_d_model"},
    model_type="gemma3_text",
    read_own=read_gemma3,
    write_own=write_gemma3,
    encoding=options.rope_by_window,
    modules=OF_LAYER | {
        "attention_norm": "input_layernorm", "attention_output_norm": "post_attention_layernorm",
        "feed_forward_norm": "pre_feedforward_layernorm",
        "feed_forward_output_norm": "post_feedforward_layernorm",
    },
    gain_offset=1.0,
)  # fmt: skip

OLMO2 = kin(
    "OLMo 2",
    NO_BIASES | {"rms_norm_eps": 1e-5, "attention_bias": False},
    {"bias": ("none", "attention")},
    kept={"norm_position": "output", "qk_norm": "across_heads"},
    model_type="olmo2",
    modules=OF_LAYER | {
        "attention_output_norm": "post_attention_layernorm",
        "feed_forward_output_norm": "post_feedforward_layernorm",
    },
)  # fmt: skip
