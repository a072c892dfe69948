"""Decoders of Llama's kind that have a window in most layers, and another encoding in the others.

OLMo 3 (OLMo team 2025), whose scaled rotary embedding is that of full layers. Cohere 2 (Command A, Cohere
team 2025, arXiv:2504.00698), with rotary embedding in layers with a window alone, and attention beside the
feed-forward layer. EXAONE 4 (LG AI Research 2025, arXiv:2507.11407), also with rotary embedding in all layers
where none has a window.
"""

from __future__ import annotations

from typing import Any

from zoo.pretrained import options
from zoo.pretrained.architecture import Model
from zoo.pretrained.architectures.llama import NO_BIASES, OF_LAYER, OLMO2, kin, read, write_types
from zoo.pretrained.config import NONE, NUMBER, Config

ROPES_OF_OLMO3 = (
    {"full_attention": "rope_theta", "sliding_attention": "rope_theta"}, ("full_attention",)
)  # fmt: skip


def read_olmo3(config: Config, model: Model) -> Model:
    """Scalings are those of full layers, every fourth."""
    of_types = options.ropes(config, *ROPES_OF_OLMO3)
    width = config.take("sliding_window", kind=(int, NONE))
    sliding = [layer % 4 > 0 for layer in range(1, model["num_layers"] + 1)]
    sliding = options.sliding_layers(config, width, sliding)
    encoding = options.in_turns([of_types[options.LAYER_TYPES[one]] for one in sliding])
    return read(config, model, encoding) | {"window": options.windows(width, sliding)}


def write_olmo3(model: Model, length: int) -> dict[str, Any]:
    given = write_types(model | {"encoding": options.of_layers(model["encoding"], model)[0]}, length)
    return given | options.write_ropes(model, length, *ROPES_OF_OLMO3)


OLMO3 = kin(
    "OLMo 3",
    OLMO2.defaults | {"rope_theta": 5e5, "sliding_window": 4096, "layer_types": None},
    {"bias": ("none", "attention"), "window": options.one_width},
    kept=OLMO2.kept,
    model_type="olmo3",
    read_own=read_olmo3,
    write_own=write_olmo3,
    encoding=options.rope_by_window,
    modules=OLMO2.modules,
)


INTERLEAVED_ROPE = options.only("rope", **options.ROTARY | {"layout": ("interleaved",)}, partial=(1.0,))


def read_rope_in_windows(config: Config, model: Model, layout: str, without_window: bool = False) -> Model:
    """Rotary embedding in layers with a window; in all, if `without_window`, where no layer may have one."""
    rope = options.rope(config, config.take("rope_theta", kind=NUMBER)) | {"layout": layout}
    width = config.take("sliding_window", kind=(int, NONE))
    sliding = options.but_every(config, "sliding_window_pattern", model, 1)
    sliding = options.sliding_layers(config, width, sliding)
    everywhere = without_window and width is None
    encoding = options.in_turns([rope if one or everywhere else {"name": "none"} for one in sliding])
    return read(config, model, encoding) | {"window": options.windows(width, sliding)}


COHERE2 = kin(
    "Cohere 2",
    {
        **{key: value for key, value in NO_BIASES.items() if key != "rms_norm_eps"}, "layer_norm_eps": 1e-5,
        "tie_word_embeddings": True, "attention_bias": False, "logit_scale": 0.0625, "sliding_window": 4096,
        "sliding_window_pattern": 4, "layer_types": None,
    },
    {"bias": ("none", "attention"), "window": options.one_width, "norm_bias": (False,)},
    kept={"norm": "layernorm", "norm_bias": False, "parallel_residual": "shared_norm"},
    model_type="cohere2",
    names=options.SIZE_NAMES | {"norm_eps": ("layer_norm_eps",), "unembedding_scale": ("logit_scale",)},
    read_own=lambda config, model: read_rope_in_windows(config, model, "interleaved"),
    write_own=write_types,
    encoding=options.rope_in_windows(INTERLEAVED_ROPE),
    modules=OF_LAYER | {"attention_norm": "input_layernorm"},
)  # fmt: skip


def exaone4_rope(model: Model) -> str | None:
    plain = not any(options.of_layers(model["window"], model))
    return (options.WHOLE_ROPE if plain else options.rope_in_windows(options.WHOLE_ROPE))(model)


EXAONE4 = kin(
    "EXAONE 4",
    NO_BIASES | {
        "num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4,
        "layer_types": None,
    },
    {"bias": ("none",), "window": options.one_width},
    kept={"norm_position": "output", "qk_norm": True},
    model_type="exaone4",
    read_own=lambda config, model: read_rope_in_windows(config, model, "half", True),
    write_own=write_types,
    encoding=exaone4_rope,
    modules=OLMO2.modules,
)  # fmt: skip
