"""Encoders with a transformed head.

ModernBERT (Warner et al. 2024, arXiv:2412.13663): RoPE, windows in two of three layers, gated GELU. BERT
(Devlin et al. 2018, arXiv:1810.04805): learned positions, norms after the sum. Its vector of the first
segment is part of each position here.
"""

from __future__ import annotations

from typing import Any

from zoo.pretrained import options
from zoo.pretrained.architecture import Architecture, Model, usual
from zoo.pretrained.config import Config

ROPES_OF_MODERNBERT = (
    dict(zip(options.LAYER_TYPES, ("global_rope_theta", "local_rope_theta"), strict=True)),
    options.LAYER_TYPES,
)


def read_modernbert(config: Config, model: Model) -> Model:
    of_types = options.ropes(config, *ROPES_OF_MODERNBERT)
    # Half of it on each side, and the token itself.
    width = config.take("local_attention") // 2 + 1
    sliding = options.but_every(config, "global_attn_every_n_layers", model, 0)
    sliding = options.sliding_layers(config, width, sliding)
    gate, bias = options.activation(config, "hidden_activation", options.GATES), options.biases(config)
    # The head is not apart from the layers here.
    if options.activation(config, "classifier_activation", options.GATES) != gate:
        config.problem("classifier_activation", "must be that of hidden_activation")
    if config.take("classifier_bias", kind=bool) != (bias == "all"):
        config.problem(
            "classifier_bias", "must be true where attention_bias and mlp_bias are, and only there"
        )
    return {
        "encoding": options.in_turns([of_types[options.LAYER_TYPES[one]] for one in sliding]),
        "window": options.windows(width, sliding), "activation": gate, "bias": bias,
        "norm_bias": config.take("norm_bias", kind=bool),
    }  # fmt: skip


def write_modernbert(model: Model, length: int) -> dict[str, Any]:
    (width, kinds), gate = options.layer_types(model), options.THEIR_GATES[model["activation"]]
    sliding = [kind == options.LAYER_TYPES[1] for kind in kinds]
    turns = (n for n in range(1, len(kinds) + 1) if sliding == [layer % n > 0 for layer in range(len(kinds))])
    return {
        "global_attn_every_n_layers": next(turns, None),
        "hidden_activation": gate, "classifier_activation": gate, "classifier_bias": model["bias"] == "all",
        "norm_bias": model["norm_bias"], "layer_types": kinds, "local_attention": 2 * ((width or 1) - 1),
        **options.write_biases(model), **options.write_ropes(model, length, *ROPES_OF_MODERNBERT),
    }  # fmt: skip


MODERNBERT = Architecture(
    title="ModernBERT",
    model_type="modernbert",
    defaults={
        **options.SIZES, "hidden_activation": "gelu", "norm_eps": 1e-5, "norm_bias": False,
        "attention_bias": False, "layer_types": None, "rope_parameters": None, "rope_scaling": None,
        "global_rope_theta": 1.6e5, "local_rope_theta": 1e4, "global_attn_every_n_layers": 3,
        "local_attention": 128, "mlp_bias": False, "decoder_bias": True, "classifier_bias": False,
        "classifier_activation": "gelu", "tie_word_embeddings": True, "position_embedding_type": "absolute",
    },
    names=options.SIZE_NAMES | {"norm_eps": ("norm_eps", "layer_norm_eps")},
    length=("max_position_embeddings",),
    kept={
        "kind": "encoder", "norm": "layernorm", "embedding_norm": True, "first_norm": False,
        "head_transform": True,
    },
    read_own=read_modernbert,
    write_own=write_modernbert,
    takes={
        "activation": tuple(options.THEIR_GATES), "bias": ("none", "attention", "feed_forward", "all"),
        "norm_bias": options.any_value, "head_dim": options.own_heads, "window": options.one_width,
    },
    encoding=options.rope_by_window,
    outside={
        "tokens.weight": "model.embeddings.tok_embeddings.weight", "head.weight": "decoder.weight",
        "head_bias": "decoder.bias", "head_transform.dense.weight": "head.dense.weight",
        "head_transform.dense.bias": "head.dense.bias", "head_transform.norm.weight": "head.norm.weight",
        "head_transform.norm.bias": "head.norm.bias", "final_norm.weight": "model.final_norm.weight",
        "final_norm.bias": "model.final_norm.bias", "embedding_norm.weight": "model.embeddings.norm.weight",
        "embedding_norm.bias": "model.embeddings.norm.bias",
    },
    layer="model.layers.{}",
    modules=usual("attn_norm", "mlp_norm", "attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo"),
    prefix="model.",
)  # fmt: skip


def read_bert(config: Config, model: Model) -> Model:
    # Other architectures ignore the key.
    if config.values.get("is_decoder"):
        config.problem("is_decoder", "a decoder cannot be imported, only an encoder")
    config.taken.add("type_vocab_size")
    table = {"name": "learned", "table_length": config.take("max_position_embeddings")}
    return {"encoding": table, "activation": options.activation(config, "hidden_act")}


BERT = Architecture(
    title="BERT",
    model_type="bert",
    defaults={
        **options.SIZES, "tie_word_embeddings": True, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
        "type_vocab_size": 2, "add_cross_attention": False, "position_embedding_type": "absolute",
    },
    names={ours: options.SIZE_NAMES[ours] for ours in ("d_model", "num_layers", "num_heads", "d_ff")}
    | {"norm_eps": ("layer_norm_eps",)},
    length=("max_position_embeddings",),
    kept={
        "kind": "encoder", "norm": "layernorm", "norm_position": "post", "embedding_norm": "with_positions",
        "bias": "all", "head_transform": True,
        "tie_embeddings": True,  # untied, `transformers` has two biases of the output layer
    },
    read_own=read_bert,
    write_own=lambda model, length: {
        "hidden_act": options.THEIR_ACTIVATIONS[model["activation"]], "type_vocab_size": 1,
        "max_position_embeddings": model["encoding"]["table_length"] or length,
    },
    takes={"activation": tuple(options.THEIR_ACTIVATIONS)},
    encoding=options.only("learned", beyond=("error",)),
    outside={
        "tokens.weight": "bert.embeddings.word_embeddings.weight",
        "encoding.slots.0.0.table": tuple(
            f"bert.embeddings.{one}_embeddings.weight" for one in ("position", "token_type")
        ),
        **{f"{ours}.{kind}": f"{theirs}.{kind}" for kind in ("weight", "bias") for ours, theirs in {
            "embedding_norm": "bert.embeddings.LayerNorm",
            "head_transform.dense": "cls.predictions.transform.dense",
            "head_transform.norm": "cls.predictions.transform.LayerNorm",
        }.items()},
        "head.weight": "cls.predictions.decoder.weight", "head_bias": "cls.predictions.bias",
    },
    layer="bert.encoder.layer.{}",
    modules={
        "attention.qkv": tuple(f"attention.self.{one}" for one in ("query", "key", "value")),
        "attention.out": "attention.output.dense", "feed_forward.up": "intermediate.dense",
        "feed_forward.down": "output.dense", "attention_residual_norm": "attention.output.LayerNorm",
        "feed_forward_residual_norm": "output.LayerNorm",
    },
    prefix="bert.",
    sizes=lambda model: {"attention.qkv": (model["d_model"],) * 3},
    repeated={"cls.predictions.decoder.bias": "cls.predictions.bias"},
    buffers=(
        "position_ids", "pooler.dense.weight", "pooler.dense.bias", "seq_relationship.weight",
        "seq_relationship.bias",
    ),
)  # fmt: skip
