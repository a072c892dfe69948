"""Decoders of the zoo under the names of an architecture that `transformers` has itself.

An architecture holds a model where it computes the same: each says which keys of the recipe's `model` it
takes, and what a weight is called there. Biases that the zoo's models lack are zeros. Tensors have their
shape in their name: H query heads, D head width, E model width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zoo.recipe import schema

Model = dict[str, Any]
"""The section `model` of a resolved recipe, as plain data."""
Weights = dict[str, Tensor]
EQUAL_SCALINGS = ("none", "linear", "ntk", "yarn", "llama3")
"""Scalings of RoPE that do not depend on the length of the sequence at hand, and are the same in both."""
RMS_EPS, LAYER_EPS = torch.finfo(torch.float32).eps, 1e-5
"""What torch adds to a variance where it is told nothing."""
IN_ANY = {"kind", "d_model", "num_layers", "num_heads", "d_ff", "dropout", "tie_embeddings", "kernel"}
"""Keys of the section that every architecture takes, or that change no result of a trained model."""


@dataclass(frozen=True)
class Architecture:
    """One of `transformers`.

    `needs` are values of keys (a type: any of that type) without which it is another model, `free` keys that
    it takes in any value; all others must have their default. `encoding` says why it cannot hold the encoding
    of a model, or None. `config` gives its own keys from the section and the trained length, `rename` its
    weights from those of the zoo's model.
    """

    title: str
    model_type: str
    needs: dict[str, Any]
    free: frozenset[str]
    encoding: Callable[[Model], str | None]
    config: Callable[[Model, int], dict[str, Any]]
    rename: Callable[[Weights, Model], Iterator[tuple[str, Tensor]]]

    def faults(self, model: Model) -> list[str]:
        """Why it cannot hold a model: `norm is layernorm`."""
        defaults = {key: field.default for key, field in schema.ModelConfig.model_fields.items()}
        found = []
        for key, value in model.items():
            if key == "encoding" or key in IN_ANY | self.free:
                continue
            wanted = self.needs.get(key, defaults.get(key))
            if value != wanted and not (isinstance(wanted, type) and type(value) is wanted):
                found.append(f"{key} is {value!r}" if value is not None else f"it has no {key}")
        fault = self.encoding(model)
        return [*found, *([fault] if fault else [])]


def native(model: Model) -> tuple[Architecture | None, str]:
    """The architecture that holds a model; or None and why the nearest cannot.

    Args:
        model: the section of the run's recipe.
    """

    def distance(pair: tuple[list[str], Architecture]) -> tuple[int, bool]:
        # Another encoding is farther away than another option of the same.
        return len(pair[0]), any(fault.startswith("encoding is") for fault in pair[0])

    fewest, nearest = min(((one.faults(model), one) for one in ARCHITECTURES), key=distance)
    return (None, f"not a {nearest.title}: {', '.join(fewest)}") if fewest else (nearest, "")


def _only_rope(partial: bool) -> Callable[[Model], str | None]:
    def fault(model: Model) -> str | None:
        encoding = model["encoding"]
        if not isinstance(encoding, dict) or encoding["name"] != "rope":
            return f"encoding is {_name(encoding)}"
        if encoding["layout"] != "half":
            return f"rope has layout {encoding['layout']}"
        if encoding["scaling"] not in EQUAL_SCALINGS:
            return f"rope has scaling {encoding['scaling']}"
        wanted = {"proportion": 1.0} if partial else {"partial": 1.0, "proportion": 1.0}
        return next((f"rope has {key} {encoding[key]:g}" for key in wanted if encoding[key] != 1), None)

    return fault


def _only_learned(model: Model) -> str | None:
    encoding = model["encoding"]
    if not isinstance(encoding, dict) or encoding["name"] != "learned":
        return f"encoding is {_name(encoding)}"
    return None if encoding["beyond"] == "error" else f"learned has beyond {encoding['beyond']}"


def _rope_or_none(model: Model) -> str | None:
    encoding = model["encoding"]
    if not isinstance(encoding, dict) or encoding["name"] != "interleave":
        return f"encoding is {_name(encoding)}"
    rotary = [one for one in encoding["pattern"] if one["name"] != "none"]
    if not rotary or any(one != rotary[0] for one in rotary):
        return "its layers are not one rope and none"
    return _only_rope(partial=False)({"encoding": rotary[0]})


def _name(encoding: Any) -> str:
    return "+".join(map(_name, encoding)) if isinstance(encoding, list) else encoding["name"]


def _common(model: Model, length: int) -> dict[str, Any]:
    return {
        "hidden_size": model["d_model"],
        "num_hidden_layers": model["num_layers"],
        "num_attention_heads": model["num_heads"],
        "max_position_embeddings": length,
        "tie_word_embeddings": model["tie_embeddings"],
        "use_cache": True,
    }


def _rotary(model: Model, encoding: dict[str, Any], length: int) -> dict[str, Any]:
    """`rope_parameters`, and the length that they are for, from the options of the zoo's rope."""
    scaling, factor, base = encoding["scaling"], encoding["factor"], encoding["base"]
    width = round(encoding["partial"] * model["d_model"] // model["num_heads"])
    given: dict[str, Any] = {"rope_type": "default", "partial_rotary_factor": encoding["partial"]}
    if scaling == "ntk":
        base *= factor ** (width / (width - 2))
    elif scaling != "none":
        given |= {"rope_type": scaling, "factor": factor}
    keys = {
        "llama3": ("low_freq_factor", "high_freq_factor"),
        "yarn": ("beta_fast", "beta_slow", "truncate", "attention_factor"),
    }.get(scaling, ())
    original = encoding["original_length"] or length
    given |= {key: encoding[key] for key in keys if encoding[key] is not None}
    given |= {"original_max_position_embeddings": original} if keys else {}
    longest = max(length, int(original * factor)) if scaling != "none" else length
    return {"rope_parameters": given | {"rope_theta": base}, "max_position_embeddings": longest}


def _llama_config(model: Model, length: int) -> dict[str, Any]:
    encoding = model["encoding"]
    if encoding["name"] == "interleave":
        encoding = next(one for one in encoding["pattern"] if one["name"] != "none")
    return {
        **_common(model, length),
        **_rotary(model, encoding, length),
        "num_key_value_heads": model["num_kv_heads"] or model["num_heads"],
        "head_dim": model["d_model"] // model["num_heads"],
        "intermediate_size": model["d_ff"],
        "hidden_act": "silu",
        "rms_norm_eps": RMS_EPS,
        "attention_bias": False,
        "mlp_bias": False,
    }


def _mistral_config(model: Model, length: int) -> dict[str, Any]:
    return _llama_config(model, length) | {"sliding_window": model["window"]}


def _smollm3_config(model: Model, length: int) -> dict[str, Any]:
    pattern = model["encoding"]["pattern"]
    rotary = [int(pattern[layer % len(pattern)]["name"] != "none") for layer in range(model["num_layers"])]
    return _llama_config(model, length) | {"no_rope_layers": rotary, "use_sliding_window": False}


def _neox_config(model: Model, length: int) -> dict[str, Any]:
    return {
        **_common(model, length),
        **_rotary(model, model["encoding"], length),
        "intermediate_size": model["d_ff"],
        "hidden_act": "gelu",
        "layer_norm_eps": LAYER_EPS,
        "attention_bias": False,
        "use_parallel_residual": False,
        "hidden_dropout": model["dropout"],
    }


def _gpt2_config(model: Model, length: int) -> dict[str, Any]:
    return {
        "n_embd": model["d_model"],
        "n_layer": model["num_layers"],
        "n_head": model["num_heads"],
        "n_positions": model["encoding"]["table_length"] or length,
        "n_inner": model["d_ff"],
        "activation_function": "gelu",
        "layer_norm_epsilon": LAYER_EPS,
        "tie_word_embeddings": model["tie_embeddings"],
        **dict.fromkeys(("resid_pdrop", "embd_pdrop"), model["dropout"]),
        "attn_pdrop": 0.0,
    }


def _layers(weights: Weights, model: Model) -> Iterator[tuple[int, Callable[[str], Tensor]]]:
    for layer in range(model["num_layers"]):
        yield layer, lambda name, layer=layer: weights[f"blocks.{layer}.{name}"]


def _llama_weights(weights: Weights, model: Model) -> Iterator[tuple[str, Tensor]]:
    heads, width = model["num_heads"], model["d_model"] // model["num_heads"]
    kv_heads = model["num_kv_heads"] or heads
    yield "model.embed_tokens.weight", weights["tokens.weight"]
    for layer, of in _layers(weights, model):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", of("attention_norm.weight")
        rows = (heads * width, kv_heads * width, kv_heads * width)
        for letter, part in zip("qkv", of("attention.qkv.weight").split(rows), strict=True):
            yield f"{at}.self_attn.{letter}_proj.weight", part
        yield f"{at}.self_attn.o_proj.weight", of("attention.out.weight")
        for letter in "qk" if model["qk_norm"] else "":
            yield f"{at}.self_attn.{letter}_norm.weight", of(f"attention.{letter}_norm.weight")
        yield f"{at}.post_attention_layernorm.weight", of("feed_forward_norm.weight")
        for name, part in zip(("gate", "up"), of("feed_forward.up.weight").chunk(2), strict=True):
            yield f"{at}.mlp.{name}_proj.weight", part
        yield f"{at}.mlp.down_proj.weight", of("feed_forward.down.weight")
    yield "model.norm.weight", weights["final_norm.weight"]
    if not model["tie_embeddings"]:
        yield "lm_head.weight", weights["head.weight"]


def _norms(at: str, of: Callable[[str], Tensor], names: dict[str, str]) -> Iterator[tuple[str, Tensor]]:
    for theirs, ours in names.items():
        for kind in ("weight", "bias"):
            yield f"{at}{theirs}.{kind}", of(f"{ours}.{kind}")


def _neox_weights(weights: Weights, model: Model) -> Iterator[tuple[str, Tensor]]:
    yield "gpt_neox.embed_in.weight", weights["tokens.weight"]
    for layer, of in _layers(weights, model):
        at = f"gpt_neox.layers.{layer}."
        names = {"input_layernorm": "attention_norm", "post_attention_layernorm": "feed_forward_norm"}
        yield from _norms(at, of, names)
        # Head by head the three lie together: [3,H,D,E] to [H,3,D,E].
        qkv_3HDE = of("attention.qkv.weight").unflatten(0, (3, model["num_heads"], -1))
        yield f"{at}attention.query_key_value.weight", qkv_3HDE.transpose(0, 1).flatten(0, 2)
        yield f"{at}attention.dense.weight", of("attention.out.weight")
        for theirs, ours in {"dense_h_to_4h": "up", "dense_4h_to_h": "down"}.items():
            weight = of(f"feed_forward.{ours}.weight")
            yield f"{at}mlp.{theirs}.weight", weight
            yield f"{at}mlp.{theirs}.bias", torch.zeros(len(weight))
    yield from _norms("gpt_neox.", weights.__getitem__, {"final_layer_norm": "final_norm"})
    if not model["tie_embeddings"]:
        yield "embed_out.weight", weights["head.weight"]


def _gpt2_weights(weights: Weights, model: Model) -> Iterator[tuple[str, Tensor]]:
    yield "transformer.wte.weight", weights["tokens.weight"]
    (table,) = (value for name, value in weights.items() if name.startswith("encoding."))
    yield "transformer.wpe.weight", table
    for layer, of in _layers(weights, model):
        at = f"transformer.h.{layer}."
        yield from _norms(at, of, {"ln_1": "attention_norm", "ln_2": "feed_forward_norm"})
        names = {
            "attn.c_attn": "attention.qkv", "attn.c_proj": "attention.out",
            "mlp.c_fc": "feed_forward.up", "mlp.c_proj": "feed_forward.down",
        }  # fmt: skip
        for theirs, ours in names.items():
            weight = of(f"{ours}.weight")
            yield f"{at}{theirs}.weight", weight.T
            yield f"{at}{theirs}.bias", torch.zeros(len(weight))
    yield from _norms("transformer.", weights.__getitem__, {"ln_f": "final_norm"})
    if not model["tie_embeddings"]:
        yield "lm_head.weight", weights["head.weight"]


_GATED = {"norm": "rmsnorm", "activation": "swiglu"}
_GROUPED = frozenset({"num_kv_heads"})
_NONE: frozenset[str] = frozenset()
_WHOLE, _PARTIAL = _only_rope(partial=False), _only_rope(partial=True)

ARCHITECTURES = (
    Architecture("Llama", "llama", _GATED, _GROUPED, _WHOLE, _llama_config, _llama_weights),
    Architecture(
        "Mistral", "mistral", _GATED | {"window": int}, _GROUPED, _WHOLE, _mistral_config, _llama_weights
    ),
    Architecture(
        "Qwen3", "qwen3", _GATED | {"qk_norm": True}, _GROUPED, _WHOLE, _llama_config, _llama_weights
    ),
    Architecture("SmolLM3", "smollm3", _GATED, _GROUPED, _rope_or_none, _smollm3_config, _llama_weights),
    Architecture("GPT-NeoX", "gpt_neox", {}, _NONE, _PARTIAL, _neox_config, _neox_weights),
    Architecture("GPT-2", "gpt2", {}, _NONE, _only_learned, _gpt2_config, _gpt2_weights),
)
