"""Decoders of GPT's kind: layer norm, feed-forward without a gate.

GPT-2 (Radford et al. 2019), with learned positions and weights kept as [in, out]. GPT-NeoX and Pythia (Black
et al. 2022, arXiv:2204.06745; Biderman et al. 2023, arXiv:2304.01373), with a rotary part of each head.
BLOOM (Scao et al. 2022, arXiv:2211.05100), with ALiBi and a norm of the token vectors. MPT (MosaicML 2023),
with ALiBi and without biases.
"""

from __future__ import annotations

from typing import Any

from zoo.pretrained import options
from zoo.pretrained.architecture import MODULES, Architecture, Model, usual
from zoo.pretrained.config import NONE, NUMBER, REQUIRED, Config

NAMES = {
    "d_model": ("n_embd", "hidden_size"), "num_layers": ("n_layer", "num_hidden_layers"),
    "num_heads": ("n_head", "num_attention_heads"), "norm_eps": ("layer_norm_epsilon",),
    "tie_embeddings": ("tie_word_embeddings",),
}  # fmt: skip
# Zeros stand for every bias and offset that is not there.
BIASES = {"bias": options.any_value, "norm_bias": options.any_value}
WITH_BIAS = (*MODULES, "embedding_norm", "final_norm")


def read_gpt2(config: Config, model: Model) -> Model:
    return {
        "encoding": {
            "name": "learned",
            "table_length": config.take("n_positions", "max_position_embeddings"),
        },
        "d_ff": config.take("n_inner", kind=(int, NONE)) or 4 * model["d_model"],
        "activation": options.activation(config, "activation_function"),
    }


def write_gpt2(model: Model, length: int) -> dict[str, Any]:
    return {
        "n_positions": model["encoding"]["table_length"] or length, "n_inner": model["d_ff"],
        "activation_function": options.THEIR_ACTIVATIONS[model["activation"]],
        "resid_pdrop": model["dropout"], "embd_pdrop": model["dropout"], "attn_pdrop": 0.0,
    }  # fmt: skip


GPT2 = Architecture(
    title="GPT-2",
    model_type="gpt2",
    defaults={
        **dict.fromkeys(("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"), REQUIRED),
        "n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True, "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    names=NAMES,
    length=("n_positions", "max_position_embeddings"),
    kept={"norm": "layernorm", "bias": "all"},
    read_own=read_gpt2,
    write_own=write_gpt2,
    takes=BIASES | {"d_ff": options.any_value, "activation": tuple(options.THEIR_ACTIVATIONS)},
    encoding=options.only("learned", beyond=("error",)),
    outside={
        "tokens.weight": "transformer.wte.weight", "encoding.slots.0.0.table": "transformer.wpe.weight",
        "final_norm.weight": "transformer.ln_f.weight", "final_norm.bias": "transformer.ln_f.bias",
        "head.weight": "lm_head.weight",
    },
    layer="transformer.h.{}",
    modules=usual("ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"),
    prefix="transformer.",
    zeros=lambda model: WITH_BIAS,
    transposed=True,
    buffers=("attn.bias", "attn.masked_bias"),
)  # fmt: skip


def read_neox(config: Config, model: Model) -> Model:
    base, part = config.take("rotary_emb_base", kind=NUMBER), config.take("rotary_pct", kind=NUMBER)
    encoding = options.rope(config, base, part, model["d_model"] // max(model["num_heads"], 1))
    bias = "all" if config.take("attention_bias", kind=bool) else "feed_forward"
    return {"encoding": encoding, "activation": options.activation(config, "hidden_act"), "bias": bias}


def write_neox(model: Model, length: int) -> dict[str, Any]:
    return {
        "hidden_act": options.THEIR_ACTIVATIONS[model["activation"]],
        "attention_bias": model["bias"] != "feed_forward", "hidden_dropout": model["dropout"],
        **options.write_rope(model, model["encoding"], length, ("rotary_emb_base", "rotary_pct")),
    }  # fmt: skip


def neox_zeros(model: Model) -> list[str]:
    return [one for one in WITH_BIAS if model["bias"] != "feed_forward" or "attention." not in one]


GPT_NEOX = Architecture(
    title="GPT-NeoX",
    model_type="gpt_neox",
    defaults={
        **options.SIZES, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "use_parallel_residual": True,
        "attention_bias": True, "tie_word_embeddings": False, "rotary_emb_base": 1e4, "rotary_pct": 0.25,
        "rope_parameters": None, "rope_scaling": None,
    },
    names=options.SIZE_NAMES | {
        "norm_eps": ("layer_norm_eps",), "parallel_residual": ("use_parallel_residual",),
    },
    length=("max_position_embeddings",),
    kept={"norm": "layernorm"},
    read_own=read_neox,
    write_own=write_neox,
    takes=BIASES | {
        "activation": tuple(options.THEIR_ACTIVATIONS), "parallel_residual": (True, False),
    },
    encoding=options.PARTIAL_ROPE,
    outside={
        "tokens.weight": "gpt_neox.embed_in.weight", "final_norm.weight": "gpt_neox.final_layer_norm.weight",
        "final_norm.bias": "gpt_neox.final_layer_norm.bias", "head.weight": "embed_out.weight",
    },
    layer="gpt_neox.layers.{}",
    modules=usual(
        "input_layernorm", "post_attention_layernorm", "attention.query_key_value", "attention.dense",
        "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
    ),
    prefix="gpt_neox.",
    zeros=neox_zeros,
    by_head=True,
    buffers=("rotary_emb.inv_freq", "attention.bias", "attention.masked_bias"),
)  # fmt: skip


def read_alibi(config: Config, model: Model) -> Model:
    if "attn_config" in config.defaults:
        config.section("attn_config", MPT_ATTENTION).finish()
    return {"encoding": {"name": "alibi"}, "d_ff": 4 * model["d_model"]}


BLOOM = Architecture(
    title="BLOOM",
    model_type="bloom",
    defaults={
        **dict.fromkeys(("vocab_size", "hidden_size", "n_layer", "n_head"), REQUIRED),
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
        "apply_residual_connection_post_layernorm": False,
        "seq_length": 2048,  # which BLOOM was trained on
    },
    names=NAMES | {"d_model": ("hidden_size", "n_embed")},
    length=("seq_length",),
    kept={"norm": "layernorm", "embedding_norm": True, "activation": "gelu_tanh", "bias": "all"},
    read_own=read_alibi,
    write_own=lambda model, length: {"hidden_dropout": model["dropout"], "seq_length": length},
    takes=BIASES | {"d_ff": options.four_widths},
    encoding=options.fixed_alibi,
    outside={
        "tokens.weight": "transformer.word_embeddings.weight", "head.weight": "lm_head.weight",
        "embedding_norm.weight": "transformer.word_embeddings_layernorm.weight",
        "embedding_norm.bias": "transformer.word_embeddings_layernorm.bias",
        "final_norm.weight": "transformer.ln_f.weight", "final_norm.bias": "transformer.ln_f.bias",
    },
    layer="transformer.h.{}",
    modules=usual(
        "input_layernorm", "post_attention_layernorm", "self_attention.query_key_value",
        "self_attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
    ),
    prefix="transformer.",
    zeros=lambda model: WITH_BIAS,
    by_head=True,
)  # fmt: skip

MPT_ATTENTION = {
    "alibi": True, "alibi_bias_max": 8, "clip_qkv": None, "softmax_scale": None, "prefix_lm": False,
    "qk_ln": False,
}  # fmt: skip
MPT_TABLE = 32
"""MPT keeps a table of ALiBi's bias, and ends with it: for so many times the trained length."""


def write_mpt(model: Model, length: int) -> dict[str, Any]:
    attention = {"learned_pos_emb": False, "attn_config": {"alibi": True}}
    return {"max_seq_len": MPT_TABLE * length, "use_cache": True, **attention}


MPT = Architecture(
    title="MPT",
    model_type="mpt",
    defaults={
        **dict.fromkeys(("vocab_size", "d_model", "n_layers", "n_heads", "max_seq_len"), REQUIRED),
        "expansion_ratio": 4, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "attn_config": None,
        "no_bias": True, "logit_scale": None, "embedding_fraction": 1.0,
    },
    names=NAMES | {
        "d_model": ("d_model", "hidden_size"), "num_layers": ("n_layers", "num_hidden_layers"),
        "num_heads": ("n_heads", "num_attention_heads"),
    },
    length=("max_seq_len",),
    kept={"norm": "layernorm", "norm_bias": False, "activation": "gelu"},
    read_own=read_alibi,
    write_own=write_mpt,
    takes={"d_ff": options.four_widths},
    encoding=options.fixed_alibi,
    outside={
        "tokens.weight": "transformer.wte.weight", "final_norm.weight": "transformer.norm_f.weight",
        "head.weight": "lm_head.weight",
    },
    layer="transformer.blocks.{}",
    modules=usual("norm_1", "norm_2", "attn.Wqkv", "attn.out_proj", "ffn.up_proj", "ffn.down_proj"),
    prefix="transformer.",
)  # fmt: skip
