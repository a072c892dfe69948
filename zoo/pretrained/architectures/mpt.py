"""MPT: ALiBi, and no biases at all (MosaicML 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder, Row, gpt2, rows_of
from zoo.pretrained.config import REQUIRED, Config
from zoo.pretrained.options import Model, fixed_alibi, four_widths, read_named, write_named

DEFAULTS = {
    **dict.fromkeys(("vocab_size", "d_model", "n_layers", "n_heads", "max_seq_len"), REQUIRED),
    "expansion_ratio": 4, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "attn_config": None,
    "no_bias": True, "logit_scale": None, "embedding_fraction": 1.0,
}  # fmt: skip
ATTENTION = {
    "alibi": True, "alibi_bias_max": 8, "clip_qkv": None, "softmax_scale": None, "prefix_lm": False,
    "qk_ln": False,
}  # fmt: skip
NAMES = gpt2.NAMES | {
    "d_model": ("d_model", "hidden_size"), "num_layers": ("n_layers", "num_hidden_layers"),
    "num_heads": ("n_heads", "num_attention_heads"),
}  # fmt: skip
KEPT = {
    "kind": "decoder", "encoding": {"name": "alibi"}, "norm": "layernorm", "norm_bias": False,
    "activation": "gelu",
}  # fmt: skip


def read(config: Config) -> Decoder:
    config.section("attn_config", ATTENTION).finish()
    model = KEPT | read_named(config, NAMES)
    model["d_ff"] = 4 * model["d_model"]
    return Decoder(model, config.take("max_seq_len"), config.take("vocab_size"))


def rows(model: Model) -> Iterator[Row]:
    outside = {
        "tokens.weight": "transformer.wte.weight", "final_norm.weight": "transformer.norm_f.weight",
        "head.weight": "lm_head.weight",
    }  # fmt: skip
    names = ("norm_1", "norm_2", "attn.Wqkv", "attn.out_proj", "ffn.up_proj", "ffn.down_proj")
    return rows_of(model, outside, "transformer.blocks.{}", names, bias=())


def write(model: Model, length: int) -> dict[str, Any]:
    return write_named(model, NAMES) | {
        "max_seq_len": BIAS_TABLE * length, "learned_pos_emb": False, "attn_config": {"alibi": True},
        "use_cache": True,
    }  # fmt: skip


BIAS_TABLE = 32
"""MPT keeps a table of ALiBi's bias, and ends with it: for so many times the trained length."""
TAKES = {"norm_bias": (False,), "d_ff": four_widths}
ARCHITECTURE = Architecture("MPT", "mpt", DEFAULTS, read, rows, "transformer.", write, TAKES, fixed_alibi)
