"""SmolLM3: Llama in which some layers have no rotary embedding (NoPE layers: arXiv:2501.18795)."""

from zoo.pretrained.architectures import Architecture, Decoder
from zoo.pretrained.architectures.llama import read as read_llama
from zoo.pretrained.architectures.llama import rows
from zoo.pretrained.config import Config


def read(config: Config) -> Decoder:
    """`no_rope_layers` has a 1 for each layer with rotary embedding, and a 0 for one without."""
    decoder = read_llama(config)
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


ARCHITECTURE = Architecture(read, rows, "model.")
