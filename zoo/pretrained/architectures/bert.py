"""Encoders with a transformed head.

ModernBERT (Warner et al. 2024, arXiv:2412.13663): RoPE, windows in two of three layers, gated GELU.
"""

from __future__ import annotations

from typing import Any

from zoo.pretrained.architecture import MODULES, Architecture, Model, usual
from zoo.pretrained.config import Config
from zoo.pretrained.options import (
    GATES,
    HAVE_BIAS,
    LAYER_TYPES,
    SIZE_NAMES,
    SIZES,
    THEIR_GATES,
    activation,
    any_value,
    biases,
    in_turns,
    of_layers,
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
    width, turn = config.take("local_attention") // 2 + 1, config.take("global_attn_every_n_layers")
    if turn < 1:
        config.problem("global_attn_every_n_layers", f"{turn} is not a number of layers")
    sliding = sliding_layers(
        config, width, [layer % max(turn, 1) > 0 for layer in range(model["num_layers"])]
    )
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
    widths, gate = of_layers(model["window"], model), THEIR_GATES[model["activation"]]
    width = next((one for one in widths if one is not None), 1)
    return {
        "hidden_activation": gate, "classifier_activation": gate, "classifier_bias": model["bias"] == "all",
        "norm_bias": model["norm_bias"], "local_attention": 2 * (width - 1),
        "layer_types": [LAYER_TYPES[one is not None] for one in widths],
        **write_biases(model), **write_ropes(model, length),
    }  # fmt: skip


def modernbert_outside(model: Model) -> dict[str, str]:
    norms = {"embedding_norm": "model.embeddings.norm", "final_norm": "model.final_norm",
             "head_transform.norm": "head.norm"}  # fmt: skip
    kinds = ("weight", "bias") if model["norm_bias"] else ("weight",)
    dense = ("weight", "bias") if model["bias"] == "all" else ("weight",)
    return {
        "tokens.weight": "model.embeddings.tok_embeddings.weight", "head.weight": "decoder.weight",
        "head_bias": "decoder.bias",
        **{f"head_transform.dense.{kind}": f"head.dense.{kind}" for kind in dense},
        **{f"{ours}.{kind}": f"{theirs}.{kind}" for ours, theirs in norms.items() for kind in kinds},
    }  # fmt: skip


def modernbert_biases(model: Model) -> tuple[str, ...]:
    return HAVE_BIAS[model["bias"]] + (MODULES[:2] if model["norm_bias"] else ())


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
    outside=modernbert_outside,
    layer="model.layers.{}",
    modules=usual("attn_norm", "mlp_norm", "attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo"),
    prefix="model.",
    biases=modernbert_biases,
)  # fmt: skip
