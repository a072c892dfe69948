"""Ministral 3 (Mistral AI 2025): Mistral with logits that grow with the position."""

from __future__ import annotations

import math
from typing import Any

from zoo.pretrained import options
from zoo.pretrained.architecture import Model
from zoo.pretrained.architectures.llama import NO_BIASES, kin, read, write
from zoo.pretrained.config import NONE, NUMBER, REQUIRED, Config

BETA, MSCALES = "llama_4_scaling_beta", ("mscale", "mscale_all_dim")
DEFAULT = {
    "type": "yarn", "rope_theta": 1e6, "factor": 16.0, options.ORIGINAL: 16384, "beta_fast": 32.0,
    "beta_slow": 1.0, **dict.fromkeys(MSCALES, 1.0), BETA: 0.1,
}  # fmt: skip
"""The section without which a configuration has this one."""

UNREAD = "default", "linear", "dynamic"
"""Types of scaling that do not read the original length."""


def read_ministral3(config: Config, model: Model) -> Model:
    """The section of the rotary embedding also has the growth of the logits, by its original length."""
    name = "rope_scaling" if config.values.get("rope_scaling") else "rope_parameters"
    if config.values.get(name) is None:
        config.values = config.values | {name: DEFAULT}
    own = {BETA: REQUIRED, **dict.fromkeys((*MSCALES, "factor", options.ORIGINAL, "rope_type", "type"))}
    section = config.section(name, own)
    beta, (scale, scale_all) = (
        section.take(BETA, kind=NUMBER),
        (section.take(k, kind=(*NUMBER, NONE)) for k in MSCALES),
    )
    kind = section.values.get("rope_type", section.values.get("type", "default"))
    length = section.take(options.ORIGINAL, kind=(int, NONE))
    apart = {BETA, *MSCALES, "max_position_embeddings"}
    apart |= {options.ORIGINAL} if kind in UNREAD else set()
    rest = {key: value for key, value in section.values.items() if key not in apart}
    factor = rest.get("factor")
    if kind == "yarn" and scale and scale_all and rest.get("attention_factor") is None:
        if not isinstance(factor, NUMBER) or factor < 1:
            section.problem("factor", f"{factor!r} gives no {MSCALES[0]}")
        else:
            by = [0.1 * one * math.log(factor) + 1 for one in (scale, scale_all)]
            rest["attention_factor"] = by[0] / by[1]
    config.values = config.values | {name: rest}
    encoding = options.rope(config, config.take("rope_theta", kind=NUMBER))
    length = length if kind in UNREAD else encoding.get("original_length")
    if length is None:
        section.problem(options.ORIGINAL, "missing")
    scaled = {"name": "temperature", "scale": float(beta), "length": length or 1, "offset": 0}
    window = config.take("sliding_window", kind=(int, NONE))
    return read(config, model, encoding) | {"logit_scale": scaled, "window": window}


def write_ministral3(model: Model, length: int) -> dict[str, Any]:
    given, growth = write(model, length), model["logit_scale"]
    given["rope_parameters"] |= {BETA: growth["scale"], options.ORIGINAL: growth["length"]}
    return given | {"sliding_window": model["window"], "rope_scaling": None}


def grows(scale: Any, model: Model) -> bool:
    """Condition on `logit_scale`: its length is the original one of the rotary embedding, if that has one."""
    wanted = {"name": "temperature", "heads": "all", "offset": 0}
    if not isinstance(scale, dict) or not wanted.items() <= scale.items():
        return False
    encoding = model["encoding"]
    has = isinstance(encoding, dict) and encoding.get("scaling") in ("yarn", "llama3")
    return not has or encoding["original_length"] == scale["length"]


MINISTRAL3 = kin(
    "Ministral 3",
    NO_BIASES | {
        "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5, "sliding_window": None,
    },
    {
        "bias": ("none",), "logit_scale": grows,
        "window": lambda value, model: value is None or isinstance(value, int),
    },
    read_own=read_ministral3,
    write_own=write_ministral3,
    model_type="ministral3",
)  # fmt: skip
