"""SmolLM3: Llama in which some layers have no rotary embedding (NoPE layers: arXiv:2501.18795)."""

from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder, llama
from zoo.pretrained.config import NONE, Config
from zoo.pretrained.options import WHOLE_ROPE, Model, called, one_width, own_heads, windows

DEFAULTS = llama.DEFAULTS | {
    "num_key_value_heads": 4, "tie_word_embeddings": True, "rope_theta": 2e6, "use_sliding_window": False,
    "sliding_window": None, "layer_types": None, "no_rope_layers": None, "no_rope_layer_interval": 4,
}  # fmt: skip


def read(config: Config) -> Decoder:
    """`no_rope_layers` has a 1 for each layer with rotary embedding, and a 0 for one without."""
    decoder = llama.read(config)
    layers = decoder.model["num_layers"]
    interval, rotary = config.take("no_rope_layer_interval"), config.take("no_rope_layers", kind=(list, NONE))
    if rotary is None:
        rotary = [interval < 1 or (layer + 1) % interval for layer in range(layers)]
    if interval < 1 or len(rotary) != layers:
        key = "no_rope_layers" if interval > 0 else "no_rope_layer_interval"
        config.problem(key, f"{config.values[key]} for {layers} layers")
    used = config.take("use_sliding_window", kind=bool)
    width = config.take("sliding_window", kind=(int, NONE))
    decoder.model["window"] = windows(config, width, [used and not one for one in rotary])
    rope, none = decoder.model["encoding"], {"name": "none"}
    if not all(rotary):
        pattern = shortest([rope if one else none for one in rotary])
        decoder.model["encoding"] = {"name": "interleave", "pattern": pattern} if any(rotary) else none
    return decoder


def shortest(pattern: list) -> list:
    """The beginning of a pattern that gives all of it when repeated."""
    size = len(pattern)
    return next(pattern[:n] for n in range(1, size + 1) if (pattern[:n] * size)[:size] == pattern)


def write(model: Model, length: int) -> dict[str, Any]:
    pattern = model["encoding"]["pattern"]
    rotary = [int(pattern[layer % len(pattern)]["name"] != "none") for layer in range(model["num_layers"])]
    return llama.write_with_windows(model, length) | {"no_rope_layers": rotary}


def rope_or_none(model: Model) -> str | None:
    """A test for an encoding that is one rope in some layers and none in the others."""
    encoding = model["encoding"]
    if called(encoding) != "interleave" or isinstance(encoding, list):
        return f"encoding is {called(encoding)}"
    rotary = [one for one in encoding["pattern"] if one["name"] != "none"]
    if not rotary or any(one != rotary[0] for one in rotary):
        return "its layers are not one rope and none"
    return WHOLE_ROPE({"encoding": rotary[0]})


TAKES = llama.TAKES | {"bias": ("none", "attention"), "head_dim": own_heads, "window": one_width}
ARCHITECTURE = Architecture(
    "SmolLM3", "smollm3", DEFAULTS, read, llama.rows, "model.", write, TAKES, rope_or_none
)
