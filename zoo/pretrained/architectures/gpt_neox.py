"""GPT-NeoX and Pythia: a rotary part of each head, attention and feed-forward in parallel.

Black et al. 2022 (arXiv:2204.06745), Biderman et al. 2023 (arXiv:2304.01373).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.pretrained.architectures import MODULES, Architecture, Decoder, Row, llama, rows_of
from zoo.pretrained.config import NUMBER, Config
from zoo.pretrained.options import (
    PARTIAL_ROPE,
    THEIR_ACTIVATIONS,
    Model,
    activation,
    any_value,
    read_named,
    rope,
    write_named,
    write_rope,
)

DEFAULTS = {
    **llama.SIZES, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "use_parallel_residual": True,
    "attention_bias": True, "tie_word_embeddings": False, "rotary_emb_base": 1e4, "rotary_pct": 0.25,
    "rope_parameters": None, "rope_scaling": None,
}  # fmt: skip
NAMES = {
    **llama.NAMES, "norm_eps": ("layer_norm_eps",), "parallel_residual": ("use_parallel_residual",),
}  # fmt: skip


def read(config: Config) -> Decoder:
    base, part = config.take("rotary_emb_base", kind=NUMBER), config.take("rotary_pct", kind=NUMBER)
    encoding = rope(config, base, part)
    # Some versions write these again, and read them in no other place.
    config.defaults |= {"rope_theta": encoding["base"], "partial_rotary_factor": encoding["partial"]}
    model = {"kind": "decoder", "encoding": encoding, "norm": "layernorm"} | read_named(config, NAMES)
    model["activation"] = activation(config, "hidden_act")
    model["bias"] = "all" if config.take("attention_bias", kind=bool) else "feed_forward"
    return Decoder(model, config.take("max_position_embeddings"), config.take("vocab_size"))


def rows(model: Model) -> Iterator[Row]:
    outside = {
        "tokens.weight": "gpt_neox.embed_in.weight", "final_norm.weight": "gpt_neox.final_layer_norm.weight",
        "final_norm.bias": "gpt_neox.final_layer_norm.bias", "head.weight": "embed_out.weight",
    }  # fmt: skip
    names = (
        "input_layernorm", "post_attention_layernorm", "attention.query_key_value", "attention.dense",
        "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
    )  # fmt: skip
    bias = [one for one in MODULES if model["bias"] != "feed_forward" or "attention." not in one]
    return rows_of(model, outside, "gpt_neox.layers.{}", names, bias, by_head=True)


def write(model: Model, length: int) -> dict[str, Any]:
    return write_named(model, NAMES) | {
        "hidden_act": THEIR_ACTIVATIONS[model["activation"]],
        "attention_bias": model["bias"] != "feed_forward", "hidden_dropout": model["dropout"],
        **write_rope(model, model["encoding"], length),
    }  # fmt: skip


# Zeros stand for every bias and offset that is not there.
TAKES = {
    "bias": any_value, "norm_bias": any_value, "d_ff": any_value, "activation": tuple(THEIR_ACTIVATIONS),
    "parallel_residual": any_value,
}  # fmt: skip
BUFFERS = ("rotary_emb.inv_freq", "attention.bias", "attention.masked_bias")
ARCHITECTURE = Architecture(
    "GPT-NeoX", "gpt_neox", DEFAULTS, read, rows, "gpt_neox.", write, TAKES, PARTIAL_ROPE, BUFFERS
)
