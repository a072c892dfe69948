"""SmolLM3: Llama in which some layers have no rotary embedding (NoPE layers: arXiv:2501.18795)."""

from typing import Any

from zoo.pretrained.architectures import Architecture, Decoder, llama
from zoo.pretrained.conditions import WHOLE_ROPE, Model, called, one_width, own_heads
from zoo.pretrained.config import Config


def read(config: Config) -> Decoder:
    """`no_rope_layers` has a 1 for each layer with rotary embedding, and a 0 for one without."""
    decoder = llama.read(config)
    layers = decoder.model["num_layers"]
    interval = config.take("no_rope_layer_interval", default=4)
    default = [int((layer + 1) % interval != 0) for layer in range(layers)]
    rotary = config.take("no_rope_layers", kind=list, default=default)
    if len(rotary) != layers:
        config.problem("no_rope_layers", f"{len(rotary)} of them for {layers} layers")
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
ARCHITECTURE = Architecture("SmolLM3", "smollm3", read, llama.rows, "model.", write, TAKES, rope_or_none)
