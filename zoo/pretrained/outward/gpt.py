"""GPT-2 and those like it: LayerNorm, two projections around GELU, queries, keys and values in one matrix."""

from __future__ import annotations

from typing import Any

from zoo.pretrained.outward.architecture import (
    PARTIAL_ROPE,
    Architecture,
    Model,
    Named,
    Weights,
    any_value,
    both,
    by_head,
    four_widths,
    layers,
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


def _gpt2_weights(weights: Weights, model: Model) -> Named:
    yield "transformer.wte.weight", weights["tokens.weight"]
    (table,) = (value for name, value in weights.items() if name.startswith("encoding."))
    yield "transformer.wpe.weight", table
    for layer, own in layers(weights, model):
        at = f"transformer.h.{layer}."
        yield from both(f"{at}ln_1", own, "attention_norm")
        yield from both(f"{at}ln_2", own, "feed_forward_norm")
        # Its matrices are multiplied from the other side.
        yield from both(f"{at}attn.c_attn", own, "attention.qkv", turned=True)
        yield from both(f"{at}attn.c_proj", own, "attention.out", turned=True)
        yield from both(f"{at}mlp.c_fc", own, "feed_forward.up", turned=True)
        yield from both(f"{at}mlp.c_proj", own, "feed_forward.down", turned=True)
    yield from both("transformer.ln_f", weights, "final_norm")
    yield from _head("lm_head", weights, model)


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


def _neox_weights(weights: Weights, model: Model) -> Named:
    yield "gpt_neox.embed_in.weight", weights["tokens.weight"]
    for layer, own in layers(weights, model):
        at = f"gpt_neox.layers.{layer}."
        yield from both(f"{at}input_layernorm", own, "attention_norm")
        yield from both(f"{at}post_attention_layernorm", own, "feed_forward_norm")
        yield from by_head(f"{at}attention.query_key_value", own, model)
        yield from both(f"{at}attention.dense", own, "attention.out")
        yield from both(f"{at}mlp.dense_h_to_4h", own, "feed_forward.up")
        yield from both(f"{at}mlp.dense_4h_to_h", own, "feed_forward.down")
    yield from both("gpt_neox.final_layer_norm", weights, "final_norm")
    yield from _head("embed_out", weights, model)


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


def _bloom_weights(weights: Weights, model: Model) -> Named:
    yield "transformer.word_embeddings.weight", weights["tokens.weight"]
    yield from both("transformer.word_embeddings_layernorm", weights, "embedding_norm")
    for layer, own in layers(weights, model):
        at = f"transformer.h.{layer}."
        yield from both(f"{at}input_layernorm", own, "attention_norm")
        yield from both(f"{at}post_attention_layernorm", own, "feed_forward_norm")
        yield from by_head(f"{at}self_attention.query_key_value", own, model)
        yield from both(f"{at}self_attention.dense", own, "attention.out")
        yield from both(f"{at}mlp.dense_h_to_4h", own, "feed_forward.up")
        yield from both(f"{at}mlp.dense_4h_to_h", own, "feed_forward.down")
    yield from both("transformer.ln_f", weights, "final_norm")
    yield from _head("lm_head", weights, model)


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


def _mpt_weights(weights: Weights, model: Model) -> Named:
    yield "transformer.wte.weight", weights["tokens.weight"]
    for layer, own in layers(weights, model):
        names = {
            "norm_1": "attention_norm", "attn.Wqkv": "attention.qkv", "attn.out_proj": "attention.out",
            "norm_2": "feed_forward_norm", "ffn.up_proj": "feed_forward.up",
            "ffn.down_proj": "feed_forward.down",
        }  # fmt: skip
        for theirs, ours in names.items():
            yield f"transformer.blocks.{layer}.{theirs}.weight", own[f"{ours}.weight"]
    yield "transformer.norm_f.weight", weights["final_norm.weight"]
    yield from _head("lm_head", weights, model)


def _head(theirs: str, weights: Weights, model: Model) -> Named:
    if not model["tie_embeddings"]:
        yield f"{theirs}.weight", weights["head.weight"]


# Zeros stand for every bias and offset that is not there.
PLAIN = {"bias": any_value, "norm_bias": any_value, "d_ff": any_value, "activation": tuple(ACTIVATIONS)}

ARCHITECTURES = (
    Architecture(
        "GPT-NeoX",
        "gpt_neox",
        PLAIN | {"parallel_residual": any_value},
        PARTIAL_ROPE,
        _neox_config,
        _neox_weights,
    ),
    Architecture("GPT-2", "gpt2", PLAIN, only("learned", beyond=("error",)), _gpt2_config, _gpt2_weights),
    Architecture(
        "MPT", "mpt", {"norm_bias": (False,), "d_ff": four_widths}, _fixed_alibi, _mpt_config, _mpt_weights
    ),
    Architecture(
        "BLOOM",
        "bloom",
        PLAIN | {"embedding_norm": (True,), "activation": ("gelu_tanh",), "d_ff": four_widths},
        _fixed_alibi,
        _bloom_config,
        _bloom_weights,
    ),
)
