"""MPT: ALiBi, and no biases at all (MosaicML 2023).

Checked against `transformers` (MptForCausalLM).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder
from zoo.pretrained.conditions import Model, fixed_alibi, four_widths
from zoo.pretrained.config import REQUIRED, Config
from zoo.pretrained.options import LAYERNORM_EPS
from zoo.pretrained.weights import Row

DEFAULTS = {
    **dict.fromkeys(("vocab_size", "d_model", "n_layers", "n_heads", "max_seq_len"), REQUIRED),
    "expansion_ratio": 4, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "attn_config": None,
    "no_bias": True, "logit_scale": None, "embedding_fraction": 1.0,
}  # fmt: skip
ATTENTION = {
    "alibi": True, "alibi_bias_max": 8, "clip_qkv": None, "softmax_scale": None, "prefix_lm": False,
    "qk_ln": False,
}  # fmt: skip


def read(config: Config) -> Decoder:
    config.section("attn_config", ATTENTION).finish()
    width = config.take("d_model", "hidden_size")
    model = {
        "kind": "decoder",
        "encoding": {"name": "alibi"},
        "d_model": width,
        "num_layers": config.take("n_layers", "num_hidden_layers"),
        "num_heads": config.take("n_heads", "num_attention_heads"),
        "d_ff": 4 * width,
        "norm": "layernorm",
        "norm_eps": config.take("layer_norm_epsilon", kind=float),
        "norm_bias": False,
        "activation": "gelu",
        "tie_embeddings": config.take("tie_word_embeddings", kind=bool),
    }
    return Decoder(model, config.take("max_seq_len"), config.take("vocab_size"))


def rows(model: Model) -> Iterator[Row]:
    yield Row("tokens.weight", ("transformer.wte.weight",))
    names = {
        "attention_norm": "norm_1",
        "feed_forward_norm": "norm_2",
        "attention.qkv": "attn.Wqkv",
        "attention.out": "attn.out_proj",
        "feed_forward.up": "ffn.up_proj",
        "feed_forward.down": "ffn.down_proj",
    }
    for layer in range(model["num_layers"]):
        for ours, theirs in names.items():
            yield Row(f"blocks.{layer}.{ours}.weight", (f"transformer.blocks.{layer}.{theirs}.weight",))
    yield Row("final_norm.weight", ("transformer.norm_f.weight",))
    if not model["tie_embeddings"]:
        yield Row("head.weight", ("lm_head.weight",))


def write(model: Model, length: int) -> dict[str, Any]:
    return {
        "d_model": model["d_model"],
        "n_layers": model["num_layers"],
        "n_heads": model["num_heads"],
        "max_seq_len": BIAS_TABLE * length,
        "layer_norm_epsilon": model.get("norm_eps") or LAYERNORM_EPS,
        "tie_word_embeddings": model["tie_embeddings"],
        "learned_pos_emb": False,
        "attn_config": {"alibi": True},
        "use_cache": True,
    }


BIAS_TABLE = 32
"""MPT keeps a table of ALiBi's bias, and ends with it: for so many times the trained length."""
TAKES = {"norm_bias": (False,), "d_ff": four_widths}
ARCHITECTURE = Architecture("MPT", "mpt", DEFAULTS, read, rows, "transformer.", write, TAKES, fixed_alibi)
