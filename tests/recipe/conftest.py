"""A recipe that is right, as a mapping and as a file."""

import pytest
import yaml

from zoo.errors import InputError


@pytest.fixture
def good():
    return {
        "name": "good",
        "model": {"kind": "decoder", "encoding": "alibi", "d_model": 64, "num_layers": 2, "num_heads": 4},
        "data": {"name": "wikitext-2", "sequence_length": 128, "batch_size": 8},
        "optimizer": {"lr": 6e-4},
        "trainer": {"max_steps": 200},
    }


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file into the working directory, a mapping as YAML; gives its name."""
    monkeypatch.chdir(tmp_path)

    def write(content, name="recipe.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
        return name

    return write


@pytest.fixture
def problems():
    """The lines of the InputError that a call raises; none where it returns."""

    def problems(call, *arguments, **keywords):
        try:
            call(*arguments, **keywords)
        except InputError as error:
            return str(error).splitlines()
        return []

    return problems
