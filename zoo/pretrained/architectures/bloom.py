"""BLOOM: ALiBi, and a norm of the token vectors (Scao et al. 2022, arXiv:2211.05100).

Checked against `transformers` (BloomForCausalLM).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder
from zoo.pretrained.conditions import Model, any_value, fixed_alibi, four_widths
from zoo.pretrained.config import REQUIRED, Config
from zoo.pretrained.options import LAYERNORM_EPS
from zoo.pretrained.weights import Row

DEFAULTS = {
    **dict.fromkeys(("vocab_size", "hidden_size", "n_layer", "n_head"), REQUIRED),
    "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
    "apply_residual_connection_post_layernorm": False,
    "seq_length": 2048,  # which BLOOM was trained on
}  # fmt: skip


def read(config: Config) -> Decoder:
    width = config.take("hidden_size", "n_embed")
    model = {
        "kind": "decoder",
        "encoding": {"name": "alibi"},
        "d_model": width,
        "num_layers": config.take("n_layer", "num_hidden_layers"),
        "num_heads": config.take("n_head", "num_attention_heads"),
        "d_ff": 4 * width,
        "norm": "layernorm",
        "norm_eps": config.take("layer_norm_epsilon", kind=float),
        "embedding_norm": True,
        "activation": "gelu_tanh",
        "bias": "all",
        "tie_embeddings": config.take("tie_word_embeddings", kind=bool),
    }
    return Decoder(model, config.take("seq_length"), config.take("vocab_size"))


def rows(model: Model) -> Iterator[Row]:
    yield Row("tokens.weight", ("transformer.word_embeddings.weight",))
    names = {
        "attention_norm": "input_layernorm",
        "feed_forward_norm": "post_attention_layernorm",
        "attention.qkv": "self_attention.query_key_value",
        "attention.out": "self_attention.dense",
        "feed_forward.up": "mlp.dense_h_to_4h",
        "feed_forward.down": "mlp.dense_4h_to_h",
    }
    for kind in ("weight", "bias"):
        yield Row(f"embedding_norm.{kind}", (f"transformer.word_embeddings_layernorm.{kind}",))
        yield Row(f"final_norm.{kind}", (f"transformer.ln_f.{kind}",))
        for layer in range(model["num_layers"]):
            for ours, theirs in names.items():
                heads = model["num_heads"] if ours == "attention.qkv" else None
                at = (f"transformer.h.{layer}.{theirs}.{kind}",)
                yield Row(f"blocks.{layer}.{ours}.{kind}", at, heads=heads)
    if not model["tie_embeddings"]:
        yield Row("head.weight", ("lm_head.weight",))


def write(model: Model, length: int) -> dict[str, Any]:
    return {
        "hidden_size": model["d_model"],
        "n_layer": model["num_layers"],
        "n_head": model["num_heads"],
        "layer_norm_epsilon": model.get("norm_eps") or LAYERNORM_EPS,
        "hidden_dropout": model["dropout"],
        "tie_word_embeddings": model["tie_embeddings"],
        "seq_length": length,
    }


# Zeros stand for every bias and offset that is not there.
TAKES = {
    "bias": any_value, "norm_bias": any_value, "d_ff": four_widths, "activation": ("gelu_tanh",),
    "embedding_norm": (True,),
}  # fmt: skip
ARCHITECTURE = Architecture("BLOOM", "bloom", DEFAULTS, read, rows, "transformer.", write, TAKES, fixed_alibi)
