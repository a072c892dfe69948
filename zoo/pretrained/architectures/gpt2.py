"""GPT-2: learned positions, weights kept as [in, out] (Radford et al. 2019).

Checked against `transformers` (GPT2LMHeadModel).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder
from zoo.pretrained.conditions import Model, any_value, only
from zoo.pretrained.config import NONE, REQUIRED, Config
from zoo.pretrained.options import LAYERNORM_EPS, THEIR_ACTIVATIONS, activation
from zoo.pretrained.weights import Row

DEFAULTS = {
    **dict.fromkeys(("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"), REQUIRED),
    "n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True, "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}  # fmt: skip


def read(config: Config) -> Decoder:
    length = config.take("n_positions", "max_position_embeddings")
    width = config.take("n_embd", "hidden_size")
    model = {
        "kind": "decoder",
        "encoding": {"name": "learned", "table_length": length},
        "d_model": width,
        "num_layers": config.take("n_layer", "num_hidden_layers"),
        "num_heads": config.take("n_head", "num_attention_heads"),
        "d_ff": config.take("n_inner", kind=(int, NONE)) or 4 * width,
        "norm": "layernorm",
        "norm_eps": config.take("layer_norm_epsilon", kind=float),
        "activation": activation(config, "activation_function"),
        "bias": "all",
        "tie_embeddings": config.take("tie_word_embeddings", kind=bool),
    }
    return Decoder(model, length, config.take("vocab_size"))


def rows(model: Model) -> Iterator[Row]:
    yield Row("tokens.weight", ("transformer.wte.weight",))
    yield Row("encoding.slots.0.0.table", ("transformer.wpe.weight",))
    names = {
        "attention_norm": "ln_1",
        "feed_forward_norm": "ln_2",
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    }
    for layer in range(model["num_layers"]):
        for ours, theirs in names.items():
            for kind in ("weight", "bias"):
                at = (f"transformer.h.{layer}.{theirs}.{kind}",)
                yield Row(f"blocks.{layer}.{ours}.{kind}", at, transposed="c_" in theirs)
    for kind in ("weight", "bias"):
        yield Row(f"final_norm.{kind}", (f"transformer.ln_f.{kind}",))
    if not model["tie_embeddings"]:
        yield Row("head.weight", ("lm_head.weight",))


def write(model: Model, length: int) -> dict[str, Any]:
    return {
        "n_embd": model["d_model"],
        "n_layer": model["num_layers"],
        "n_head": model["num_heads"],
        "n_positions": model["encoding"]["table_length"] or length,
        "n_inner": model["d_ff"],
        "activation_function": THEIR_ACTIVATIONS[model["activation"]],
        "layer_norm_epsilon": model.get("norm_eps") or LAYERNORM_EPS,
        "tie_word_embeddings": model["tie_embeddings"],
        **dict.fromkeys(("resid_pdrop", "embd_pdrop"), model["dropout"]),
        "attn_pdrop": 0.0,
    }


# Zeros stand for every bias and offset that is not there.
TAKES = {
    "bias": any_value, "norm_bias": any_value, "d_ff": any_value, "activation": tuple(THEIR_ACTIVATIONS),
}  # fmt: skip
BUFFERS = ("attn.bias", "attn.masked_bias")
TABLE = only("learned", beyond=("error",))
ARCHITECTURE = Architecture(
    "GPT-2", "gpt2", DEFAULTS, read, rows, "transformer.", write, TAKES, TABLE, BUFFERS
)
