"""The faulty plugins, each with one fault."""

from pathlib import Path

import pytest

FAULTY = Path(__file__).parent / "faulty"


@pytest.fixture
def faulty(forgetful_registry):
    """Read a faulty plugin into the registry, and describe it."""

    def faulty(name):
        (description,) = forgetful_registry.load_plugin(FAULTY / f"{name}.py")
        return description

    return faulty
