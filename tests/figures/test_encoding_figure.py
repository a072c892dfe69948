"""The figure of an encoding holds the output of its hooks, for every registered encoding."""

import numpy as np
import pytest
import torch

from zoo import registry
from zoo.encodings.rotary.rope import RoPE
from zoo.errors import InputError
from zoo.figures.encoding import build, draw_encodings, panels_of
from zoo.figures.specs import labels_of, read_specs, resolved

SMALL = {"trained": 8, "heads": 2, "d_model": 16}
LENGTH = 24
GENERAL = {"attention"}
"""Panels of every encoding."""
MASKED = ("bias_matrix", "score_matrix")
FEW = [
    "alibi", "rope", "sinusoidal", "learned", "shaw", "fox", "none", ["rope", "fox"],
    {"name": "randomized", "of": "alibi"}, {"name": "interleave", "pattern": ["rope", "alibi", "none"]},
]  # fmt: skip


def drawn(spec, length=LENGTH):
    stack, _ = build(resolved(spec), **SMALL)
    return stack, {panel.key: panel for panel in panels_of(stack, length=length, trained=SMALL["trained"])}


def check_panels(spec):
    stack, panels = drawn(spec)
    assert set(panels) - GENERAL, "nothing beyond what all have"
    defined = min(LENGTH, stack.max_length or LENGTH)
    for panel in panels.values():
        assert panel.title and panel.caption.endswith(".") and panel.data
        for name, values in panel.data.items():
            if panel.key.startswith(MASKED):
                values = values[..., np.tri(values.shape[-1], dtype=bool)]
            if name != "wavelength":  # of a pair that does not turn there is none
                assert np.isfinite(values).all(), (panel.key, name)
        if defined < LENGTH:
            assert f"Refused beyond {defined} tokens." in panel.caption
    attention = panels["attention"].data["mean"]
    assert attention.shape[0] == SMALL["heads"]
    first = stack.slots[0][0]
    if "bias_by_distance" in panels and len(stack.slots) == 1:
        table = stack.bias_table(defined).numpy()
        np.testing.assert_array_equal(panels["bias_by_distance"].data["bias"], table[:, -1, ::-1])
        causal = np.where(np.tri(defined, dtype=bool), table, np.nan) if stack.size.causal else table
        np.testing.assert_array_equal(panels["bias_matrix"].data["bias"], causal)
    if "embed_map" in panels and len(stack.slots) == 1:
        ids = torch.arange(defined)
        pos = first.positions(ids, 1) if first.uses("positions") else ids
        vectors = first.embed(torch.zeros(1, defined, SMALL["d_model"]), pos)[0].detach().numpy()
        np.testing.assert_array_equal(panels["embed_map"].data["vectors"], vectors)
        waves = panels["embed_waves"].data
        np.testing.assert_array_equal(waves["waves"], vectors[:, waves["dimensions"]])


def test_panels_hold_the_output_of_the_hooks():
    for spec in FEW:
        check_panels(spec)


def test_every_registered_encoding_has_its_panels(spec_of):
    for name in registry.encodings.names():
        check_panels(spec_of(name))


@pytest.mark.slow
def test_every_kind_of_panel_is_painted():
    specs = ["alibi", "cable", "learned", "none", "pope", "shaw", *FEW[-2:]]
    figure = draw_encodings(specs, length=LENGTH, **SMALL)
    assert 5_000 < len(figure.render(".png")) < 2_000_000
    assert 10_000 < len(figure.svg()) < 10_000_000


@pytest.mark.parametrize("layout, partial", [("half", 0.5), ("interleaved", 1.0)])
def test_the_angles_are_those_of_the_frequencies(layout, partial):
    spec = {"name": "rope", "layout": layout, "partial": partial, "base": 100.0}
    _, panels = drawn(spec)
    width = int(SMALL["d_model"] / SMALL["heads"] * partial)
    frequency = 100.0 ** (-np.arange(0, width, 2) / width)
    turns = np.arange(LENGTH)[:, None] * frequency / (2 * np.pi)
    np.testing.assert_allclose(panels["angles"].data["turns"], turns, atol=1e-4)
    np.testing.assert_allclose(panels["wavelengths"].data["wavelength"], 2 * np.pi / frequency, rtol=1e-3)
    short = (turns[SMALL["trained"] - 1] < 1).sum()
    assert f"{short} of {len(frequency)} pairs" in panels["angles"].caption


def test_angles_of_dimensions_that_become_complex_numbers():
    _, panels = drawn("pope")
    width = SMALL["d_model"] // SMALL["heads"]
    turns = np.arange(LENGTH)[:, None] * 10000.0 ** (-np.arange(width) / width) / (2 * np.pi)
    np.testing.assert_allclose(panels["angles"].data["turns"], turns, atol=1e-4)


def test_attention_follows_the_scores_and_is_uniform_without_any():
    _, panels = drawn("alibi")
    steep, flat = panels["attention"].data["mean"]
    assert steep[0] > 2 * steep[-1]  # near keys before far ones
    assert abs(flat.mean() - 1) < 0.1
    _, panels = drawn("none")
    assert "No distance is told apart" in panels["attention"].caption


def test_learned_values_that_start_at_zero_are_drawn_at_random_with_a_note():
    _, learned = build(resolved("cope"), **SMALL)
    assert learned
    figure = draw_encodings(["cope"], length=LENGTH, **SMALL)
    assert all("drawn at random here" in panel.caption for panel in figure.panels)
    figure = draw_encodings(["alibi"], length=LENGTH, **SMALL)
    assert not any("drawn at random here" in panel.caption for panel in figure.panels)


def test_one_encoding_alone_has_the_panels_of_a_model_of_it():
    stack, panels = drawn("rope")
    alone = panels_of(RoPE(stack.size).eval(), length=LENGTH, trained=SMALL["trained"], color="#000000")
    assert [panel.key for panel in alone] == list(panels)
    named = panels_of({"name": "rope"}, length=LENGTH, trained=SMALL["trained"])
    assert [panel.key for panel in named] == list(panels)


def test_beside_each_other_they_share_rows_and_are_told_apart():
    specs = ["rope", {"name": "rope", "scaling": "linear", "factor": 4.0}]
    figure = draw_encodings(specs, length=LENGTH, **SMALL)
    assert [column.label for column in figure.columns] == ["rope", "rope scaling=linear factor=4"]
    assert len({column.color for column in figure.columns}) == 2
    assert all(None not in row for _, row in figure.rows)


def test_names_of_one_encoding_given_twice_differ():
    assert labels_of([resolved("rope")] * 2) == ["rope (1)", "rope (2)"]


def test_every_problem_is_reported_at_once():
    with pytest.raises(InputError) as caught:
        read_specs(["ropee", "{name: alibi, slope: 3}", "rope"])
    assert str(caught.value).splitlines() == [
        "no encoding 'ropee'; did you mean 'rope'?", "encoding.slope: unknown key; did you mean 'slopes'?",
    ]  # fmt: skip
