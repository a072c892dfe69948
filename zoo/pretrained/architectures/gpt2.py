"""GPT-2: learned positions, weights kept as [in, out] (Radford et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder, Row, rows_of
from zoo.pretrained.config import NONE, REQUIRED, Config
from zoo.pretrained.options import (
    THEIR_ACTIVATIONS,
    Model,
    activation,
    any_value,
    only,
    read_named,
    write_named,
)

DEFAULTS = {
    **dict.fromkeys(("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"), REQUIRED),
    "n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True, "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}  # fmt: skip
NAMES = {
    "d_model": ("n_embd", "hidden_size"), "num_layers": ("n_layer", "num_hidden_layers"),
    "num_heads": ("n_head", "num_attention_heads"), "norm_eps": ("layer_norm_epsilon",),
    "tie_embeddings": ("tie_word_embeddings",),
}  # fmt: skip


def read(config: Config) -> Decoder:
    length = config.take("n_positions", "max_position_embeddings")
    model = {"kind": "decoder", "norm": "layernorm", "bias": "all"} | read_named(config, NAMES)
    model["encoding"] = {"name": "learned", "table_length": length}
    model["d_ff"] = config.take("n_inner", kind=(int, NONE)) or 4 * model["d_model"]
    model["activation"] = activation(config, "activation_function")
    return Decoder(model, length, config.take("vocab_size"))


def rows(model: Model) -> Iterator[Row]:
    outside = {
        "tokens.weight": "transformer.wte.weight", "encoding.slots.0.0.table": "transformer.wpe.weight",
        "final_norm.weight": "transformer.ln_f.weight", "final_norm.bias": "transformer.ln_f.bias",
        "head.weight": "lm_head.weight",
    }  # fmt: skip
    names = ("ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    return rows_of(model, outside, "transformer.h.{}", names, transposed=True)


def write(model: Model, length: int) -> dict[str, Any]:
    return write_named(model, NAMES) | {
        "n_positions": model["encoding"]["table_length"] or length, "n_inner": model["d_ff"],
        "activation_function": THEIR_ACTIVATIONS[model["activation"]],
        "resid_pdrop": model["dropout"], "embd_pdrop": model["dropout"], "attn_pdrop": 0.0,
    }  # fmt: skip


# Zeros stand for every bias and offset that is not there.
TAKES = {
    "bias": any_value, "norm_bias": any_value, "d_ff": any_value, "activation": tuple(THEIR_ACTIVATIONS),
}  # fmt: skip
BUFFERS = ("attn.bias", "attn.masked_bias")
TABLE = only("learned", beyond=("error",))
ARCHITECTURE = Architecture(
    "GPT-2", "gpt2", DEFAULTS, read, rows, "transformer.", write, TAKES, TABLE, BUFFERS
)
