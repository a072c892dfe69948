"""Phi-3 and Phi-4-mini (Abdin et al. 2024, arXiv:2404.14219), of Llama's kind, with rotary embedding of a
part of each head. LongRoPE divides its frequencies by one list up to the original length, by another beyond.
"""

from __future__ import annotations

from typing import Any

from zoo.pretrained import options
from zoo.pretrained.architecture import Model
from zoo.pretrained.architectures.llama import NO_BIASES, OF_LAYER, kin, read, write
from zoo.pretrained.config import NONE, NUMBER, Config


def read_phi3(config: Config, model: Model) -> Model:
    width = config.take("head_dim", kind=(int, NONE)) or model["d_model"] // max(model["num_heads"], 1)
    base, part = (config.take(key, kind=NUMBER) for key in ("rope_theta", "partial_rotary_factor"))
    encoding = options.rope(config, base, part, width, config.take(options.ORIGINAL))
    return read(config, model, encoding) | {"window": config.take("sliding_window", kind=(int, NONE))}


def write_phi3(model: Model, length: int) -> dict[str, Any]:
    """With LongRoPE as version 4 of `transformers` has it, if its attention factor is the usual one."""
    encoding = model["encoding"]
    factor, long = encoding["factor"], encoding["scaling"] == "longrope"
    if long:
        pairs = round(encoding["partial"] * options.head_width(model)) // 2
        lists = encoding["short_factor"] or [1.0] * pairs, encoding["long_factor"] or [factor] * pairs
        lists = dict(zip(("short_factor", "long_factor"), lists, strict=True))
        encoding = encoding | lists
    given = write(model | {"encoding": encoding}, length)
    inside, longest = given["rope_parameters"], given["max_position_embeddings"]
    original = inside.get(options.ORIGINAL, length)
    if long:
        usual = encoding["attention_factor"] is None and longest == original * factor
        given["rope_scaling"] = {"type": "longrope", **lists} if usual else None
    part = inside["partial_rotary_factor"]
    beside = {options.ORIGINAL: original, "partial_rotary_factor": part, "sliding_window": model["window"]}
    return given | beside


PHI3 = kin(
    "Phi-3",
    NO_BIASES | {"rms_norm_eps": 1e-5, "sliding_window": None, options.ORIGINAL: 4096},
    {
        "bias": ("none",), "head_dim": options.own_heads,
        "window": lambda value, model: value is None or isinstance(value, int),
    },
    model_type="phi3",
    read_own=read_phi3,
    write_own=write_phi3,
    encoding=options.only("rope", **options.ROTARY | {"scaling": ("none", "longrope")}),
    modules=OF_LAYER | {
        "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
        "attention.qkv": "self_attn.qkv_proj", "feed_forward.up": "mlp.gate_up_proj",
    },
    sizes=lambda model: {},
)  # fmt: skip
