"""The zoo's own: the form in which `export` writes a decoder that no architecture of `transformers` holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from zoo.pretrained.architecture import Architecture, MappedWeight, Model, PublishedConfig
from zoo.pretrained.config import REQUIRED, Config

MODEL_TYPE = "positional_encoding_zoo"
REPEATED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "tie_word_embeddings", "auto_map")
"""Keys for other tools: what they say is in the section `model` too."""


@dataclass(frozen=True)
class Own(Architecture):
    """Its configuration holds the section `model`, and its weights have the zoo's names."""

    def read(self, config: Config) -> PublishedConfig:
        config.taken.update(REPEATED)
        model = config.take("recipe_model", kind=dict) or {}
        return PublishedConfig(
            {"kind": "decoder", **model}, config.take(*self.length), config.take("vocab_size")
        )

    def rows(self, model: Model, own: Collection[str]) -> Iterator[MappedWeight]:
        return (MappedWeight(name, (self.prefix + name,)) for name in own)

    def copies(self, model: Model) -> dict[str, str]:
        return {}


OWN = Own(
    title="zoo",
    model_type=MODEL_TYPE,
    defaults=dict.fromkeys(("recipe_model", "vocab_size", "max_position_embeddings"), REQUIRED),
    names={},
    length=("max_position_embeddings",),
    read_own=lambda config, model: {},
    write_own=lambda model, length: {},
    takes={},
    encoding=lambda model: "it is not for export",
    outside={"tokens.weight": "model.tokens.weight"},
    layer="",
    modules={},
    prefix="model.",
)
