"""Llama and those like it: RMSNorm, SwiGLU, rotary positions, keys shared by groups of queries."""

from __future__ import annotations

from typing import Any

import torch

from zoo.pretrained.outward.architecture import (
    WHOLE_ROPE,
    Architecture,
    Model,
    any_value,
    called,
    head_width,
    rope_parameters,
)


def _rope_or_none(model: Model) -> str | None:
    encoding = model["encoding"]
    if called(encoding) != "interleave" or isinstance(encoding, list):
        return f"encoding is {called(encoding)}"
    rotary = [one for one in encoding["pattern"] if one["name"] != "none"]
    if not rotary or any(one != rotary[0] for one in rotary):
        return "its layers are not one rope and none"
    return WHOLE_ROPE({"encoding": rotary[0]})


def _config(model: Model, length: int) -> dict[str, Any]:
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
        # What torch adds where it is told nothing.
        "rms_norm_eps": model.get("norm_eps") or torch.finfo(torch.float32).eps,
        "attention_bias": bias in ("attention", "all"),
        "mlp_bias": bias == "all",
        **rope_parameters(model, encoding, length),
    }


def _mistral_config(model: Model, length: int) -> dict[str, Any]:
    return _config(model, length) | {"sliding_window": model["window"]}


def _windowed_config(model: Model, length: int) -> dict[str, Any]:
    widths = _windows(model["window"], model)
    width = next((one for one in widths if one is not None), None)
    kinds = ["full_attention" if one is None else "sliding_attention" for one in widths]
    window = {"use_sliding_window": width is not None, "sliding_window": width, "layer_types": kinds}
    return _config(model, length) | window


def _smollm3_config(model: Model, length: int) -> dict[str, Any]:
    pattern = model["encoding"]["pattern"]
    rotary = [int(pattern[layer % len(pattern)]["name"] != "none") for layer in range(model["num_layers"])]
    return _windowed_config(model, length) | {"no_rope_layers": rotary}


def _windows(pattern: Any, model: Model) -> list[int | None]:
    """The window of each layer."""
    several = pattern if isinstance(pattern, list) else [pattern]
    return [several[layer % len(several)] for layer in range(model["num_layers"])]


def _one_width(pattern: Any, model: Model) -> bool:
    """Of `window`, where an architecture has one width, for layers of its choice."""
    return len({*_windows(pattern, model)} - {None}) <= 1


GATED = {
    "norm": ("rmsnorm",),
    "activation": ("swiglu",),
    "num_kv_heads": any_value,
    "head_dim": any_value,
    "d_ff": any_value,
    "norm_bias": any_value,  # RMSNorm has none
}
WINDOWS = {"window": _one_width}
ONE_WINDOW = {"window": lambda value, model: isinstance(value, int)}
OF_ATTENTION = {"bias": ("none", "attention")}
OWN_HEADS = {"head_dim": lambda value, model: value in (None, model["d_model"] // model["num_heads"])}

ARCHITECTURES = (
    Architecture("Llama", "llama", GATED | {"bias": ("none", "attention", "all")}, WHOLE_ROPE, _config),
    Architecture("Mistral", "mistral", GATED | ONE_WINDOW, WHOLE_ROPE, _mistral_config),
    Architecture(
        "Qwen2", "qwen2", GATED | OWN_HEADS | WINDOWS | {"bias": ("qkv",)}, WHOLE_ROPE, _windowed_config
    ),
    Architecture(
        "Qwen3", "qwen3", GATED | WINDOWS | OF_ATTENTION | {"qk_norm": (True,)}, WHOLE_ROPE, _windowed_config
    ),
    Architecture(
        "SmolLM3", "smollm3", GATED | OWN_HEADS | WINDOWS | OF_ATTENTION, _rope_or_none, _smollm3_config
    ),
)
