"""Encodings in models that are not the zoo's: they compute what the zoo's models compute."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import zoo
from zoo import registry
from zoo.contract.subject import HEADS, LAYERS, LENGTH, WIDTH, draw_large_weights
from zoo.encodings.base import Size
from zoo.encodings.stack import EncodingStack
from zoo.models.standalone import StandaloneEncoding

PAGE = Path(__file__).parents[2] / "docs" / "own-model.md"
SIZE = {"d_model": WIDTH, "num_heads": HEADS, "num_layers": LAYERS, "length": LENGTH}


def blocks(page=PAGE):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.S)


def by_hand(model, encoding, tokens, **masks):
    """The hidden states of one of the zoo's models, with attention written outside of it."""
    x = encoding.embed(model.tokens(tokens), tokens=tokens, **masks)
    for layer, block in enumerate(model.blocks):
        normed = block.attention_norm(x)
        q, k, v = block.attention.qkv(normed).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        out = encoding.attend(q, k, v, x=normed, layer=layer)
        x = x + block.attention.out(out.transpose(1, 2).flatten(2))
        x = x + block.feed_forward(block.feed_forward_norm(x))
    return model.final_norm(x)


DECODERS = [name for name in registry.encodings.names() if registry.encodings.describe(name).decoder]


@pytest.mark.parametrize("name", [*DECODERS, "rotated_values", "value_shift"])
def test_attention_outside_equals_attention_inside(name, plugins, model_of, spec_of, tokens):
    """Plain, with padding on the left, with documents, and token by token with a cache, at any scale."""
    model = model_of(spec_of(name), attention_scale=0.5)
    encoding, row = StandaloneEncoding(model.encoding), tokens(2, 13)
    keep = torch.arange(13) >= torch.tensor([[0], [4]])
    documents = torch.tensor([0] * 5 + [5] * 8).expand(2, -1)
    with torch.no_grad():
        for masks in ({}, {"keep": keep}, {"documents": documents}):
            ours, theirs = by_hand(model, encoding, row, **masks), model.hidden(row, **masks)
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
        if (limit := model.encoding.max_cached_length) is not None and limit < 13:
            return
        cache = encoding.cache()
        steps = [by_hand(model, encoding, row[:, i : i + 1], cache=cache) for i in range(13)]
        torch.testing.assert_close(torch.cat(steps, 1), model.hidden(row), rtol=0, atol=1e-5)


# Terms without a query are scaled too.
SCALED_BESIDES = {"transformer_xl": ("content_bias", "position_bias"), "deberta": ("queries",)}
# They take a softplus of a query's features.
NOT_LINEAR = {"pope", "grape_a"}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", sorted(set(registry.encodings.names()) - NOT_LINEAR))
def test_a_larger_scale_is_that_of_larger_queries(name, causal, spec_of):
    about = registry.encodings.describe(name)
    if not (about.decoder if causal else about.encoder):
        pytest.skip(f"{name} is for the other kind of model")
    # By default cable keeps its products from being scaled.
    spec = {"name": "cable", "scale": "head"} if name == "cable" else spec_of(name)
    (q, k, v), x = torch.randn(3, 2, HEADS, 17, WIDTH // HEADS), torch.randn(2, 17, WIDTH)
    outs = []
    for scale, times in ((2.5 * q.shape[-1] ** -0.5, 1.0), (None, 2.5)):
        encoding = StandaloneEncoding(
            EncodingStack(spec, Size(*SIZE.values(), causal, attention_scale=scale))
        )
        draw_large_weights(encoding, 0)
        for key, parameter in encoding.requires_grad_(False).eval().named_parameters():
            if key.endswith(SCALED_BESIDES.get(name, "-")):
                parameter *= times
        encoding.embed(x, tokens=torch.arange(17).expand(2, -1) % 7)
        outs.append(encoding.attend(q * times, k, v, x=x, layer=0))
    torch.testing.assert_close(*outs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("q, said", [
    (torch.randn(1, HEADS // 2, 5, WIDTH // HEADS), f"give zoo.encoding(..., num_heads={HEADS // 2})"),
    (torch.randn(1, HEADS, 5, 3), "give zoo.encoding(..., head_dim=3)"),
])  # fmt: skip
def test_heads_of_another_number_or_width_are_refused(q, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        zoo.encoding("alibi", **SIZE).attend(q, q, q, layer=0)


def test_scale_of_attention_is_that_of_its_encodings():
    encoding = zoo.encoding([{"name": "path"}, {"name": "fox", "scaled": True}], **SIZE, scale=0.5)
    assert {part.size.scale for slot in encoding.stack.slots for part in slot} == {0.5}
    assert encoding.stack.slots[1][0].scale == 0.5


class GPT(nn.Module):
    """A nanoGPT around the attention of the page."""

    def __init__(self, config, attention):
        super().__init__()
        width = config.n_embd
        self.wte = nn.Embedding(29, width)
        self.h = nn.ModuleList(
            nn.ModuleDict({
                "ln_1": nn.LayerNorm(width), "attn": attention(config), "ln_2": nn.LayerNorm(width),
                "fc": nn.Linear(width, 4 * width, bias=False),
                "proj": nn.Linear(4 * width, width, bias=False),
            }) for _ in range(config.n_layer)
        )  # fmt: skip
        self.ln_f = nn.LayerNorm(width)
        self.encoding = zoo.encoding(config.encoding, **SIZE)

    def forward(self, tokens):
        x = self.encoding.embed(self.wte(tokens))
        for layer, block in enumerate(self.h):
            x = x + block["attn"](block["ln_1"](x), self.encoding, layer)
            x = x + block["proj"](F.gelu(block["fc"](block["ln_2"](x))))
        return self.ln_f(x) @ self.wte.weight.T


@pytest.mark.parametrize("spec", ["fire", "learned", ["rope", {"name": "alibi"}], "path"])
def test_losses_of_a_nanogpt_equal_those_of_the_zoo(spec, model_of, tokens):
    scope = {"nn": nn, "F": F}
    exec(next(one for one in blocks() if "class Causal" in one and "encoding.attend" in one), scope)
    config = SimpleNamespace(n_embd=WIDTH, n_head=HEADS, n_layer=LAYERS, encoding=spec)
    ours, theirs = GPT(config, scope["CausalSelfAttention"]).train(), model_of(spec).train()
    names = {
        "tokens": "wte", "blocks": "h", "attention_norm": "ln_1", "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj", "feed_forward_norm": "ln_2", "feed_forward.up": "fc",
        "feed_forward.down": "proj", "final_norm": "ln_f", "encoding.": "encoding.stack.",
    }  # fmt: skip
    state = {}
    for name, value in theirs.state_dict().items():
        for old, new in names.items():
            name = re.sub(rf"(^|\.){re.escape(old)}", rf"\g<1>{new}", name, count=1)
        state[name] = value
    ours.load_state_dict(state)
    losses, row = [], tokens(2, LENGTH)
    for model in (ours, theirs):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses.append([])
        for _ in range(5):
            loss = F.cross_entropy(model(row)[:, :-1].flatten(0, 1), row[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert losses[0][-1] < losses[0][0]


def test_gradients_of_checkpointed_layers_are_those_of_plain_ones(tokens):
    encoding = zoo.encoding("t5", **SIZE)
    q, k, v = torch.randn(3, 2, HEADS, LENGTH, 8)
    grads = []
    for run in (
        lambda *a: encoding.attend(*a, layer=0),
        lambda *a: torch.utils.checkpoint.checkpoint(
            lambda *b: encoding.attend(*b, layer=0), *a, use_reentrant=False
        ),
    ):
        encoding.zero_grad()
        run(q, k, v).square().sum().backward()
        grads.append([p.grad.clone() for p in encoding.parameters()])
    torch.testing.assert_close(grads[0], grads[1])


def test_what_was_forgotten_is_an_error():
    q = k = v = torch.randn(1, HEADS, 5, 8)
    with pytest.raises(ValueError, match="embed"):
        zoo.encoding("learned", **SIZE).attend(q, k, v, layer=0)
    with pytest.raises(ValueError, match="x=x"):
        zoo.encoding("fox", **SIZE).attend(q, k, v, layer=0)
    with pytest.raises(ValueError, match="head_dim=16"):
        zoo.encoding("alibi", **SIZE).attend(*torch.randn(3, 1, HEADS, 5, 16), layer=0)
    with pytest.raises(ValueError, match=f"ends at {LENGTH}"):
        zoo.encoding("learned", **SIZE).embed(torch.randn(1, LENGTH + 1, WIDTH))
    with pytest.raises(zoo.InputError, match="alibi"):
        zoo.encoding("alibii", **SIZE)
    with pytest.raises(zoo.InputError, match="slopes"):
        zoo.encoding({"name": "alibi", "slope": "harmonic"}, **SIZE)


@pytest.mark.parametrize(("spec", "changes", "key"), [
    ("rope", {"d_model": 65}, "num_heads"),
    ("rope", {"num_layers": 0}, "num_layers"),
    ("rope", {"num_heads": 0}, "num_heads"),
    ("rope", {"length": 8.5}, "length"),
    ("alibi", {"head_dim": 0}, "head_dim"),
    ("alibi", {"kernel": "flax"}, "kernel"),
    ("dape", {}, "of"),
    ("dual_chunk", {}, "no model is trained with it, but with rope"),
    (["alibi", {"name": "randomized", "of": "self_extend"}], {}, "1.of"),
])  # fmt: skip
def test_what_no_model_has_is_refused(spec, changes, key):
    with pytest.raises(zoo.InputError, match=f"(^|: ){key}(: |$)"):
        zoo.encoding(spec, **{**SIZE, **changes})


def test_the_bias_of_one_layer_and_of_no_layer_that_is_not_there():
    encoding, q = zoo.encoding("kerple", **SIZE), torch.zeros(1, HEADS, 9, WIDTH // HEADS)
    # With queries of zero the scores are the bias.
    weights = encoding.bias_table(9).masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf).softmax(-1)
    v = torch.eye(9).expand(1, HEADS, -1, -1)
    torch.testing.assert_close(encoding.attend(q, q, v, layer=1)[0], weights)
    for layer in (LAYERS, -1):
        with pytest.raises(ValueError, match=f"no layer {layer}"):
            encoding.attend(q, q, v, layer=layer)


def test_a_llama_with_the_zoo_s_rope_is_a_llama():
    transformers = pytest.importorskip("transformers")
    code = next(block for block in blocks() if "AttentionInterface" in block).replace('"kerple"', '"rope"')
    scope = {}
    exec(code, scope)
    plain = transformers.LlamaForCausalLM(transformers.LlamaConfig.from_dict(scope["config"].to_dict()))
    plain.load_state_dict({k: v for k, v in scope["model"].state_dict().items() if "encoding" not in k})
    with torch.no_grad():
        torch.testing.assert_close(scope["logits"], plain(torch.arange(20)[None]).logits, rtol=0, atol=1e-5)


@pytest.mark.launch
def test_nothing_of_training_is_imported():
    code = """
import json, sys, torch, zoo
encoding = zoo.encoding("rope", d_model=16, num_heads=2, num_layers=1, length=8)
q = torch.randn(1, 2, 8, 8)
encoding.attend(q, q, q, layer=0)
print(json.dumps(sorted({"lightning", "datasets", "pandas", "plotly", "transformers"} & sys.modules.keys())))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
