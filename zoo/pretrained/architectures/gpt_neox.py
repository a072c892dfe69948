"""GPT-NeoX and Pythia: a rotary part of each head, attention and feed-forward in parallel.

Black et al. 2022 (arXiv:2204.06745), Biderman et al. 2023 (arXiv:2304.01373). Checked against `transformers`
(GPTNeoXForCausalLM).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder, llama
from zoo.pretrained.conditions import PARTIAL_ROPE, Model, any_value
from zoo.pretrained.config import NUMBER, Config
from zoo.pretrained.options import LAYERNORM_EPS, THEIR_ACTIVATIONS, activation, rope, write_rope
from zoo.pretrained.weights import Row

DEFAULTS = {
    **llama.SIZES, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "use_parallel_residual": True,
    "attention_bias": True, "tie_word_embeddings": False, "rotary_emb_base": 1e4, "rotary_pct": 0.25,
    "rope_parameters": None, "rope_scaling": None,
}  # fmt: skip


def read(config: Config) -> Decoder:
    attention = config.take("attention_bias", kind=bool)
    encoding = rope(
        config, config.take("rotary_emb_base", kind=NUMBER), config.take("rotary_pct", kind=NUMBER)
    )
    # Some versions write these again, and read them in no other place.
    config.defaults |= {"rope_theta": encoding["base"], "partial_rotary_factor": encoding["partial"]}
    model = {
        "kind": "decoder",
        "encoding": encoding,
        "d_model": config.take("hidden_size"),
        "num_layers": config.take("num_hidden_layers"),
        "num_heads": config.take("num_attention_heads"),
        "d_ff": config.take("intermediate_size"),
        "norm": "layernorm",
        "norm_eps": config.take("layer_norm_eps", kind=float),
        "activation": activation(config, "hidden_act"),
        "bias": "all" if attention else "feed_forward",
        "parallel_residual": config.take("use_parallel_residual", kind=bool),
        "tie_embeddings": config.take("tie_word_embeddings", kind=bool),
    }
    return Decoder(model, config.take("max_position_embeddings"), config.take("vocab_size"))


def rows(model: Model) -> Iterator[Row]:
    yield Row("tokens.weight", ("gpt_neox.embed_in.weight",))
    names = {
        "attention_norm": "input_layernorm",
        "feed_forward_norm": "post_attention_layernorm",
        "attention.qkv": "attention.query_key_value",
        "attention.out": "attention.dense",
        "feed_forward.up": "mlp.dense_h_to_4h",
        "feed_forward.down": "mlp.dense_4h_to_h",
    }
    for layer in range(model["num_layers"]):
        for ours, theirs in names.items():
            heads = model["num_heads"] if ours == "attention.qkv" else None
            bare = model["bias"] == "feed_forward" and ours.startswith("attention.")
            for kind in ("weight",) if bare else ("weight", "bias"):
                at = (f"gpt_neox.layers.{layer}.{theirs}.{kind}",)
                yield Row(f"blocks.{layer}.{ours}.{kind}", at, heads=heads)
    for kind in ("weight", "bias"):
        yield Row(f"final_norm.{kind}", (f"gpt_neox.final_layer_norm.{kind}",))
    if not model["tie_embeddings"]:
        yield Row("head.weight", ("embed_out.weight",))


def write(model: Model, length: int) -> dict[str, Any]:
    return {
        "hidden_size": model["d_model"],
        "num_hidden_layers": model["num_layers"],
        "num_attention_heads": model["num_heads"],
        "intermediate_size": model["d_ff"],
        "hidden_act": THEIR_ACTIVATIONS[model["activation"]],
        "layer_norm_eps": model.get("norm_eps") or LAYERNORM_EPS,
        "attention_bias": True,
        "use_parallel_residual": model.get("parallel_residual", False),
        "hidden_dropout": model["dropout"],
        "tie_word_embeddings": model["tie_embeddings"],
        **write_rope(model, model["encoding"], length),
    }


# Zeros stand for every bias and offset that is not there.
TAKES = {
    "bias": any_value, "norm_bias": any_value, "d_ff": any_value, "activation": tuple(THEIR_ACTIVATIONS),
    "parallel_residual": any_value,
}  # fmt: skip
BUFFERS = ("rotary_emb.inv_freq", "attention.bias", "attention.masked_bias")
ARCHITECTURE = Architecture(
    "GPT-NeoX", "gpt_neox", DEFAULTS, read, rows, "gpt_neox.", write, TAKES, PARTIAL_ROPE, BUFFERS
)
