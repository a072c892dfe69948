"""The attention weights of imported models equal those of `transformers`."""

import pytest
import torch
from published import VOCABULARY, publish

import zoo
from zoo.pretrained.import_model import import_model, read_published


# By position embeddings, rotary with grouped heads, with windows, and with a bias.
@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2 with windows", "bloom"])
def test_weights_are_those_of_transformers(name, here):
    theirs = publish(name, here / "published")
    run = zoo.open(import_model(read_published("published"), name="ours"))
    assert run.curves.empty and run.results.empty and run.recipe.name == "ours"
    tokens = torch.randint(VOCABULARY, (2, 24))
    theirs.set_attn_implementation("eager")
    with torch.no_grad():
        expected = torch.stack(theirs(tokens, output_attentions=True).attentions)
    torch.testing.assert_close(run.model().attention(tokens), expected, rtol=0, atol=1e-5)
