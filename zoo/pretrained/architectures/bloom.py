"""BLOOM: ALiBi, and a norm of the token vectors (Scao et al. 2022, arXiv:2211.05100)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder, Row, gpt2, rows_of
from zoo.pretrained.config import REQUIRED, Config
from zoo.pretrained.options import Model, any_value, fixed_alibi, four_widths, read_named, write_named

DEFAULTS = {
    **dict.fromkeys(("vocab_size", "hidden_size", "n_layer", "n_head"), REQUIRED),
    "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
    "apply_residual_connection_post_layernorm": False,
    "seq_length": 2048,  # which BLOOM was trained on
}  # fmt: skip
NAMES = gpt2.NAMES | {"d_model": ("hidden_size", "n_embed")}
KEPT = {
    "kind": "decoder", "encoding": {"name": "alibi"}, "norm": "layernorm", "embedding_norm": True,
    "activation": "gelu_tanh", "bias": "all",
}  # fmt: skip


def read(config: Config) -> Decoder:
    model = KEPT | read_named(config, NAMES)
    model["d_ff"] = 4 * model["d_model"]
    return Decoder(model, config.take("seq_length"), config.take("vocab_size"))


def rows(model: Model) -> Iterator[Row]:
    outside = {"tokens.weight": "transformer.word_embeddings.weight", "head.weight": "lm_head.weight"}
    for kind in ("weight", "bias"):
        outside[f"embedding_norm.{kind}"] = f"transformer.word_embeddings_layernorm.{kind}"
        outside[f"final_norm.{kind}"] = f"transformer.ln_f.{kind}"
    names = (
        "input_layernorm", "post_attention_layernorm", "self_attention.query_key_value",
        "self_attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
    )  # fmt: skip
    return rows_of(model, outside, "transformer.h.{}", names, by_head=True)


def write(model: Model, length: int) -> dict[str, Any]:
    return write_named(model, NAMES) | {"hidden_dropout": model["dropout"], "seq_length": length}


# Zeros stand for every bias and offset that is not there.
TAKES = {
    "bias": any_value, "norm_bias": any_value, "d_ff": four_widths, "activation": ("gelu_tanh",),
    "embedding_norm": (True,),
}  # fmt: skip
ARCHITECTURE = Architecture("BLOOM", "bloom", DEFAULTS, read, rows, "transformer.", write, TAKES, fixed_alibi)
