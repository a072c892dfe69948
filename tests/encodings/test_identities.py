"""Encodings that are another one at some values of their options or parameters."""

import math

import pytest
import torch

from zoo.encodings.bias.alibi import official_slopes

HEADS, LENGTH = 6, 17
SLOPE = torch.tensor(official_slopes(HEADS))


def constant(encoding, **values):
    """Set parameters and buffers, by `_` in place of a dot; all others to 0."""
    with torch.no_grad():
        for name, parameter in encoding.named_parameters():
            parameter.copy_(torch.as_tensor(values.get(name.replace(".", "_"), 0.0)))


def still(rope):
    """The pairs of RoPE that make no full turn at the trained length stand still."""
    rope.frequency[rope.frequency < 2 * math.pi / LENGTH] = 0


# Encoding, values of its parameters, and what it is then; the last as a function of that encoding.
IDENTITIES = {
    "constant steps": ({"name": "cable", "scale": "head"}, {"steps_bias": SLOPE.expm1().log()}, "alibi"),
    "constant gates of fox": ("fox", {"gate_bias": -SLOPE.expm1().log()}, "alibi"),
    "constant gates of grape_a": ("grape_a", {"omega": math.log(math.expm1(1 / math.log(4)))}, "alibi"),
    "gates of a half": ("grape_m", {}, {"name": "rope", "scaling": "linear", "factor": 2.0}),
    "open gates of wall": ("wall", {"gate_bias": 200.0}, "none"),
    "an MLP of zeros": ({"name": "dape", "of": "alibi"}, {}, "alibi"),
    "no strength": ("kerple", {"free_r1": -16.0}, "none"),
    "a low sink": ({"name": "sink", "initial": -1e4}, {"s": -1e4}, "none"),
    "nothing clipped": ({"name": "rope_clipped", "clipped": 0.0}, {}, "rope"),
    "all clipped": ({"name": "rope_clipped", "form": "hard", "clipped": 1.0}, {}, "none"),
    "no scale": ({"name": "xpos", "scale_base": 1e9}, {}, {"name": "rope", "layout": "interleaved"}),
    "no coefficients": ({"name": "fope", "gain": 0.0}, {}, ("rope", still)),
    "no room for a draw": ({"name": "randomized", "of": "rope", "max_position": LENGTH}, {}, "rope"),
    "no room to skip": ({"name": "pose", "of": "rope", "max_position": LENGTH}, {}, "rope"),
    "no other offset": ({"name": "shape", "of": "sinusoidal", "max_offset": 1}, {}, "sinusoidal"),
    "one group of heads": ({"name": "heads", "of": ["rope"]}, {}, "rope"),
    "no head masked": ({"name": "hard_alibi", "masked": 0}, {}, "none"),
    # Outside training.
    "no shift": ({"name": "cape", "of": "alibi"}, None, "alibi"),
    "no skip": ({"name": "pose", "of": "rope"}, None, "rope"),
    "no draw": ({"name": "randomized", "of": "rope", "evaluation": "plain"}, None, "rope"),
}  # fmt: skip


@pytest.mark.parametrize("title", IDENTITIES)
def test_it_is_the_other(title, model_of, tokens, agree):
    spec, values, other = IDENTITIES[title]
    other, change = other if isinstance(other, tuple) else (other, None)
    model, plain = model_of(spec), model_of(other)
    rest = {
        name: value for name, value in plain.state_dict().items() if values is None or "encoding." not in name
    }
    model.load_state_dict({**rest, **{k: v for k, v in model.state_dict().items() if k not in rest}})
    for layer in range(model.num_layers):
        if values is not None:
            constant(model.encoding.layer(layer).encodings[0], **(values or {}))
        if change:
            change(plain.encoding.layer(layer).encodings[0])
    name = spec if isinstance(spec, str) else spec["name"]
    row = tokens(2, LENGTH)
    for mode in (False, True)[: 1 if values is None else 2]:
        agree(model.train(mode)(row), plain.train(mode)(row), encoding=name, against=f"identity: {title}")
