"""Encoders with a transformed head.

ModernBERT (Warner et al. 2024, arXiv:2412.13663): RoPE, windows in two of three layers, gated GELU.
"""

from __future__ import annotations

from typing import Any

from zoo.pretrained.architecture import Architecture, Model, usual
from zoo.pretrained.config import Config
from zoo.pretrained.options import (
    GATES,
    LAYER_TYPES,
    SIZE_NAMES,
    SIZES,
    THEIR_GATES,
    activation,
    any_value,
    biases,
    but_every,
    in_turns,
    layer_types,
    one_width,
    own_heads,
    rope_by_window,
    ropes,
    sliding_layers,
    windows,
    write_biases,
    write_ropes,
)  # fmt: skip


def read_modernbert(config: Config, model: Model) -> Model:
    thetas = dict(zip(LAYER_TYPES, ("global_rope_theta", "local_rope_theta"), strict=True))
    of_types = ropes(config, thetas, LAYER_TYPES)
    # Half of it on each side, and the token itself.
    width = config.take("local_attention") // 2 + 1
    sliding = sliding_layers(config, width, but_every(config, "global_attn_every_n_layers", model, 0))
    gate, bias = activation(config, "hidden_activation", GATES), biases(config)
    # The head is not apart from the layers here.
    if activation(config, "classifier_activation", GATES) != gate:
        config.problem("classifier_activation", "must be that of hidden_activation")
    if config.take("classifier_bias", kind=bool) != (bias == "all"):
        config.problem(
            "classifier_bias", "must be true where attention_bias and mlp_bias are, and only there"
        )
    return {
        "encoding": in_turns([of_types[LAYER_TYPES[one]] for one in sliding]),
        "window": windows(width, sliding), "activation": gate, "bias": bias,
        "norm_bias": config.take("norm_bias", kind=bool),
    }  # fmt: skip


def write_modernbert(model: Model, length: int) -> dict[str, Any]:
    (width, kinds), gate = layer_types(model), THEIR_GATES[model["activation"]]
    return {
        "hidden_activation": gate, "classifier_activation": gate, "classifier_bias": model["bias"] == "all",
        "norm_bias": model["norm_bias"], "layer_types": kinds, "local_attention": 2 * ((width or 1) - 1),
        **write_biases(model), **write_ropes(model, length),
    }  # fmt: skip


MODERNBERT = Architecture(
    title="ModernBERT",
    model_type="modernbert",
    defaults={
        **SIZES, "hidden_activation": "gelu", "norm_eps": 1e-5, "norm_bias": False, "attention_bias": False,
        "layer_types": None, "rope_parameters": None, "rope_scaling": None, "global_rope_theta": 1.6e5,
        "local_rope_theta": 1e4, "global_attn_every_n_layers": 3, "local_attention": 128, "mlp_bias": False,
        "decoder_bias": True, "classifier_bias": False, "classifier_activation": "gelu",
        "tie_word_embeddings": True, "position_embedding_type": "absolute",
    },
    names=SIZE_NAMES | {"norm_eps": ("norm_eps", "layer_norm_eps")},
    length=("max_position_embeddings",),
    kept={
        "kind": "encoder", "norm": "layernorm", "embedding_norm": True, "first_norm": False,
        "head_transform": True,
    },
    read_own=read_modernbert,
    write_own=write_modernbert,
    takes={
        "activation": tuple(THEIR_GATES), "bias": ("none", "attention", "feed_forward", "all"),
        "norm_bias": any_value, "head_dim": own_heads, "window": one_width,
    },
    encoding=rope_by_window,
    outside={
        "tokens.weight": "model.embeddings.tok_embeddings.weight", "head.weight": "decoder.weight",
        "head_bias": "decoder.bias", "head_transform.dense.weight": "head.dense.weight",
        "head_transform.dense.bias": "head.dense.bias", "head_transform.norm.weight": "head.norm.weight",
        "head_transform.norm.bias": "head.norm.bias", "final_norm.weight": "model.final_norm.weight",
        "final_norm.bias": "model.final_norm.bias", "embedding_norm.weight": "model.embeddings.norm.weight",
        "embedding_norm.bias": "model.embeddings.norm.bias",
    },
    layer="model.layers.{}",
    modules=usual("attn_norm", "mlp_norm", "attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo"),
    prefix="model.",
)  # fmt: skip
