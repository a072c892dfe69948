"""GPT-2 and those like it: LayerNorm, two projections around GELU, queries, keys and values in one matrix."""

from __future__ import annotations

from typing import Any

from zoo.pretrained.outward.architecture import (
    PARTIAL_ROPE,
    Architecture,
    Model,
    any_value,
    four_widths,
    only,
    rope_parameters,
)

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}
BIAS_TABLE = 32
"""MPT keeps a table of ALiBi's bias, and ends with it: for so many times the trained length."""


def _eps(model: Model) -> float:
    return model.get("norm_eps") or 1e-5


def _gpt2_config(model: Model, length: int) -> dict[str, Any]:
    return {
        "n_embd": model["d_model"],
        "n_layer": model["num_layers"],
        "n_head": model["num_heads"],
        "n_positions": model["encoding"]["table_length"] or length,
        "n_inner": model["d_ff"],
        "activation_function": ACTIVATIONS[model["activation"]],
        "layer_norm_epsilon": _eps(model),
        "tie_word_embeddings": model["tie_embeddings"],
        **dict.fromkeys(("resid_pdrop", "embd_pdrop"), model["dropout"]),
        "attn_pdrop": 0.0,
    }


def _neox_config(model: Model, length: int) -> dict[str, Any]:
    return {
        "hidden_size": model["d_model"],
        "num_hidden_layers": model["num_layers"],
        "num_attention_heads": model["num_heads"],
        "intermediate_size": model["d_ff"],
        "hidden_act": ACTIVATIONS[model["activation"]],
        "layer_norm_eps": _eps(model),
        "attention_bias": True,
        "use_parallel_residual": model.get("parallel_residual", False),
        "hidden_dropout": model["dropout"],
        "tie_word_embeddings": model["tie_embeddings"],
        **rope_parameters(model, model["encoding"], length),
    }


def _fixed_alibi(model: Model) -> str | None:
    fault = only("alibi", learned=(False,))(model)
    heads = model["num_heads"]
    # The two rules for slopes differ where the heads are no power of two.
    if fault is None and model["encoding"]["slopes"] != "official" and heads & (heads - 1):
        return f"alibi has slopes {model['encoding']['slopes']}"
    return fault


def _bloom_config(model: Model, length: int) -> dict[str, Any]:
    return {
        "hidden_size": model["d_model"],
        "n_layer": model["num_layers"],
        "n_head": model["num_heads"],
        "layer_norm_epsilon": _eps(model),
        "hidden_dropout": model["dropout"],
        "tie_word_embeddings": model["tie_embeddings"],
        "seq_length": length,
    }


def _mpt_config(model: Model, length: int) -> dict[str, Any]:
    return {
        "d_model": model["d_model"],
        "n_layers": model["num_layers"],
        "n_heads": model["num_heads"],
        "max_seq_len": BIAS_TABLE * length,
        "layer_norm_epsilon": _eps(model),
        "tie_word_embeddings": model["tie_embeddings"],
        "learned_pos_emb": False,
        "attn_config": {"alibi": True},
        "use_cache": True,
    }


# Zeros stand for every bias and offset that is not there.
PLAIN = {"bias": any_value, "norm_bias": any_value, "d_ff": any_value, "activation": tuple(ACTIVATIONS)}

ARCHITECTURES = (
    Architecture(
        "GPT-NeoX",
        "gpt_neox",
        PLAIN | {"parallel_residual": any_value},
        PARTIAL_ROPE,
        _neox_config,
    ),
    Architecture("GPT-2", "gpt2", PLAIN, only("learned", beyond=("error",)), _gpt2_config),
    Architecture("MPT", "mpt", {"norm_bias": (False,), "d_ff": four_widths}, _fixed_alibi, _mpt_config),
    Architecture(
        "BLOOM",
        "bloom",
        PLAIN | {"embedding_norm": (True,), "activation": ("gelu_tanh",), "d_ff": four_widths},
        _fixed_alibi,
        _bloom_config,
    ),
)
