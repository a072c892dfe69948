"""Small models over any encoding, and a registry that forgets what a test has added to it."""

from pathlib import Path

import pytest
import torch

from zoo.encodings import registry
from zoo.encodings.base import Size
from zoo.models.transformer import Decoder, Encoder
from zoo.recipe.schema import ModelConfig

PLUGINS = sorted((Path(__file__).parent / "encodings" / "plugins").glob("*.py"))


def _enliven(model, seed):
    """Weights under which attention is sharp and every hook tells: a start of N(0, 0.02) hides faults."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() < 2:
                parameter += 0.1 * noise
            else:
                parameter.copy_(noise / parameter.shape[1] ** 0.5)


@pytest.fixture
def model_of():
    """A model in evaluation mode around an encoding; `lively` replaces its start by larger weights."""

    def model_of(
        encoding,
        kind="decoder",
        *,
        vocab_size=29,
        length=16,
        head="vocabulary",
        seed=0,
        lively=True,
        **config,
    ):
        fields = {"d_model": 48, "num_layers": 2, "num_heads": 6, **config}
        made = {"decoder": Decoder, "encoder": Encoder}[kind](
            ModelConfig(kind=kind, encoding=encoding, **fields), vocab_size, length, head, seed
        )
        if lively:
            _enliven(made, seed)
        return made.eval()

    return model_of


@pytest.fixture
def size_of():
    """The size of the small model that an encoding is built for."""

    def size_of(**changes):
        return Size(
            **{
                "d_model": 48,
                "num_heads": 6,
                "num_layers": 2,
                "length": 16,
                "causal": True,
                "layer": 0,
                **changes,
            }
        )

    return size_of


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def tokens():
    """Token ids [batch, length], always the same for the same shape."""

    def tokens(batch, length, vocab_size=29):
        return torch.randint(vocab_size, (batch, length), generator=torch.Generator().manual_seed(length))

    return tokens


@pytest.fixture
def forgetful_registry():
    """Takes out of the registry, after the test, what came in during it."""
    tables = [registry._plugins, registry._live, registry._classes]
    before = [dict(table) for table in tables]
    yield registry
    builtin = registry._builtin()
    for table, old in zip(tables, before, strict=True):
        for name in table.keys() - old.keys() - builtin.keys():
            del table[name]


@pytest.fixture
def plugins(forgetful_registry):
    """The three plugins of `tests/encodings/plugins`, which use the hooks that the zoo's own do not."""
    for file in PLUGINS:
        forgetful_registry.read_plugin(file)
    return forgetful_registry
