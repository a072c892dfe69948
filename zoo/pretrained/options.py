"""What several architectures say in the same way, read and written: rotary embedding, activation, windows."""

from __future__ import annotations

from typing import Any

from zoo.pretrained.conditions import Model
from zoo.pretrained.config import REQUIRED, Config

LAYERNORM_EPS, RMSNORM_EPS = 1e-5, 2.0**-23
"""What torch adds to a variance, in float32, where it is told nothing."""

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}
SCALINGS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "beta_fast", "beta_slow", "truncate", "attention_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}
"""The options of each type of scaling, named as ours."""


def rope(config: Config, partial: float = 1.0) -> dict[str, Any]:
    """The encoding of an architecture with rotary embedding: `rope` with its base and its scaling.

    Since version 5 `transformers` keeps all of it under `rope_parameters`, before in several keys.
    """
    base = config.take("rope_theta", "rotary_emb_base", kind=(int, float), default=10000.0)
    length = config.take("max_position_embeddings")
    newer = config.values.get("rope_parameters") is not None
    given = config.section("rope_parameters" if newer else "rope_scaling")
    config.known.update(("rope_parameters", "rope_scaling"))
    base = given.take("rope_theta", kind=(int, float), default=base)
    partial = given.take("partial_rotary_factor", kind=(int, float), default=partial)
    kind = given.take("rope_type", "type", kind=str, default="default")
    spec: dict[str, Any] = {"name": "rope", "base": float(base), "partial": float(partial)}
    if kind not in SCALINGS:
        given.problem("rope_type", f"{kind!r} cannot be imported, only {', '.join(SCALINGS)}")
        return spec
    if kind != "default":
        original = given.take("original_max_position_embeddings", default=length)
        spec["scaling"] = {"dynamic": "dynamic_ntk"}.get(kind, kind)
        if kind != "linear":
            spec["original_length"] = original
        for key in SCALINGS[kind]:
            default = REQUIRED if key == "factor" else None
            value = given.take(key, kind=(int, float, bool), default=default)
            if value is not None:
                spec[key] = value if isinstance(value, bool) else float(value)
    given.known.update(("type", "original_max_position_embeddings"))
    given.finish()
    return spec


def activation(config: Config, *keys: str) -> str:
    """Ours for the one that a key names; a gate is not among them."""
    name = config.take(*keys, kind=str, default="gelu")
    if name not in ACTIVATIONS:
        config.problem(keys[0], f"{name!r} cannot be imported, only {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS.get(name, "gelu")


def windows(config: Config, layers: int) -> int | list[int | None] | None:
    """The sliding window of all layers or of each, from `sliding_window` and the keys that restrict it."""
    width = config.take("sliding_window", default=None)
    used = config.take("use_sliding_window", kind=bool, default=True)
    first = config.take("max_window_layers", default=0)
    types = config.take("layer_types", kind=list, default=None)
    if types is None:
        if width is None or not used:
            return None
        by_layer = "use_sliding_window" in config.values  # Qwen: the first layers see all
        return [width if layer >= first else None for layer in range(layers)] if by_layer else width
    known = {"full_attention": None, "sliding_attention": width}
    if unknown := sorted({str(one) for one in types} - set(known)):
        config.problem("layer_types", f"{', '.join(unknown)} cannot be imported, only {', '.join(known)}")
    if len(types) != layers:
        config.problem("layer_types", f"{len(types)} of them for {layers} layers")
    return [known.get(str(one)) for one in types[:layers]]


def windows_of_layers(model: Model) -> list[int | None]:
    """The window of each layer of a model."""
    pattern = model["window"]
    several = pattern if isinstance(pattern, list | tuple) else [pattern]
    return [several[layer % len(several)] for layer in range(model["num_layers"])]


def head_width(model: Model) -> int:
    return model.get("head_dim") or model["d_model"] // model["num_heads"]


def write_rope(model: Model, encoding: dict[str, Any], length: int) -> dict[str, Any]:
    """`rope_parameters` and the length they are for, from the options of the zoo's rope."""
    scaling, factor, base = encoding["scaling"], encoding["factor"], encoding["base"]
    given: dict[str, Any] = {"rope_type": "default", "partial_rotary_factor": encoding["partial"]}
    if scaling == "ntk":
        width = round(encoding["partial"] * head_width(model))
        base *= factor ** (width / (width - 2))
    elif scaling != "none":
        given |= {"rope_type": scaling, "factor": factor}
    own = [key for key in SCALINGS.get(scaling, ()) if key != "factor"]
    original = encoding["original_length"] or length
    given |= {key: encoding[key] for key in own if encoding[key] is not None}
    given |= {"original_max_position_embeddings": original} if own else {}
    longest = length if scaling == "none" else max(length, int(original * factor))
    return {"rope_parameters": given | {"rope_theta": base}, "max_position_embeddings": longest}
