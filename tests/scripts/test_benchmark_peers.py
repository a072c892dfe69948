"""The benchmark against other libraries is fair: its models have one size."""

import importlib
import sys

import pytest

pytest.importorskip("transformers")
pytest.importorskip("x_transformers")


@pytest.fixture
def script(monkeypatch):
    """The script as a module."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    module = importlib.import_module("benchmark_peers")
    yield module
    for name in [name for name in sys.modules if name.split(".")[0] in ("benchmark_peers", "peers")]:
        del sys.modules[name]  # it registers a dataset, which the registry forgets after the test


def test_sides_of_an_encoding_have_as_many_parameters(script):
    """To 3 %, at the sizes that are measured."""
    import torch

    from peers.sides import Side, recipe_of
    from zoo.tasks import build_task

    for name in ("small", "medium"):
        size, counts = script.SIZES[name], {}
        for (_, encoding), builder in script.BUILDERS.items():
            with torch.device("meta"):
                model, _ = builder(size, True)
            counts.setdefault(encoding, []).append(sum(p.numel() for p in model.parameters()))
        for encoding, others in counts.items():
            recipe = recipe_of(Side("zoo", encoding), size, torch.device("cpu"), 1)
            own = sum(p.numel() for p in build_task(recipe, size.vocabulary).model.parameters())
            for count in others:
                assert abs(count / own - 1) < 0.03, (name, encoding, own, others)
