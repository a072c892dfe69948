"""An imported model is exported with the weights that were published."""

import pytest
from published import publish
from transformers import AutoModelForCausalLM

from zoo.pretrained.export import export
from zoo.pretrained.import_model import import_model, read_published


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2 with windows", "smollm3", "pythia", "gpt2", "bloom"])
def test_an_imported_model_is_exported_with_its_weights(name, here):
    theirs = publish(name, here / "published")
    export(import_model(read_published("published"), name="ours"), here / "out", "hf")
    again = AutoModelForCausalLM.from_pretrained("out")
    assert type(again) is type(theirs)
    weights = again.state_dict()
    assert all((weights[key] == value).all() for key, value in theirs.state_dict().items())
    card = (here / "out" / "README.md").read_text()
    assert "| imported from | published (" in card and "| tokens seen | unknown |" in card
    assert "datasets:" not in card
