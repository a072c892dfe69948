"""The figure of an encoding holds the output of its hooks, for every registered encoding."""

import numpy as np
import pytest
import torch
from figure_texts import text_faults

from zoo import registry
from zoo.errors import InputError
from zoo.figures.encoding import Sizes, build, columns, figure, panels_of, resolved
from zoo.figures.style import content
from zoo.reports.draw import read_specs

SMALL = {"trained": 8, "heads": 2, "d_model": 16}
LENGTH = 24
MASKED = ("bias_matrix",)
FEW = [
    "alibi", "rope", "sinusoidal", "learned", "shaw", "fox", "none", ["rope", "fox"],
    {"name": "randomized", "of": "alibi"}, {"name": "interleave", "pattern": ["rope", "alibi", "none"]},
    {"name": "heads", "of": ["rope", "alibi"]},
]  # fmt: skip


def drawn(spec, length=LENGTH):
    stack, _ = build(resolved(spec), Sizes(**SMALL))
    return stack, {panel.key: panel for panel in panels_of(stack, length=length, trained=SMALL["trained"])}


def check_panels(spec):
    stack, panels = drawn(spec)
    defined = min(LENGTH, stack.max_length or LENGTH)
    for panel in panels.values():
        assert panel.title and panel.caption.endswith(".") and panel.data
        for name, values in panel.data.items():
            if panel.key.startswith(MASKED):
                values = values[..., np.tri(values.shape[-1], dtype=bool)]
            # A bias of minus infinity hides a key.
            hidden = np.isneginf(values) if panel.key in ("bias_by_distance", "bias_matrix") else False
            assert (np.isfinite(values) | hidden).all(), (panel.key, name)
        if defined < LENGTH:
            assert f"Refused beyond {defined} tokens." in panel.caption
    attention = panels["attention"].data["mean"]
    assert attention.shape[0] == SMALL["heads"]
    first = stack.slots[0][0]
    if "bias_by_distance" in panels and len(stack.slots) == 1:
        table = stack.bias_table(defined).numpy()
        np.testing.assert_array_equal(panels["bias_by_distance"].data["mean"], table[:, -1, ::-1])
        causal = np.where(np.tri(defined, dtype=bool), table, np.nan) if stack.size.causal else table
        np.testing.assert_array_equal(panels["bias_matrix"].data["bias"], causal)
    if "embed_map" in panels and len(stack.slots) == 1:
        ids = torch.arange(defined)
        pos = first.positions(ids, 1) if first.uses("positions") else ids
        vectors = first.embed(torch.zeros(1, defined, SMALL["d_model"]), pos)[0].detach().numpy()
        np.testing.assert_array_equal(panels["embed_map"].data["vectors"], vectors)


def test_panels_hold_the_output_of_the_hooks():
    for spec in FEW:
        check_panels(spec)


def test_every_registered_encoding_has_its_panels(spec_of):
    for name in registry.encodings.names():
        check_panels(spec_of(name))


@pytest.mark.slow
def test_every_kind_of_panel_is_drawn():
    specs = ("alibi", "cable", "learned", "none", "pope", "shaw", *FEW[-3:])
    made = figure(specs, length=LENGTH, **SMALL)
    assert 5_000 < len(content(made, ".png")) < 2_000_000
    assert 10_000 < len(content(made, ".svg")) < 10_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "specs",
    [
        "alibi",
        ("alibi", "rope", "t5", "sinusoidal"),
        ("learned", "pope", {"name": "heads", "of": ["rope", "alibi"]}),
        tuple({"name": "rope", "base": 123456.0, "scaling": "yarn", "factor": n} for n in (2.0, 4.0)),
    ],
)
def test_no_text_is_cut_off_or_overlaps(specs):
    assert text_faults(figure(specs)) == []


def test_layers_of_one_encoding_that_differ_have_panels_of_their_own():
    (panels,) = columns({"name": "repo", "start": 3}, Sizes(length=20, trained=10)).values()
    titles = [panel.title for panel in panels if "Attention" in panel.title]
    assert [title.split("(")[1] for title in titles] == ["repo, layers from 0)", "repo, layers from 3)"]


@pytest.mark.parametrize("layout, partial", [("half", 0.5), ("interleaved", 1.0)])
def test_the_angles_are_those_of_the_frequencies(layout, partial):
    spec = {"name": "rope", "layout": layout, "partial": partial, "base": 100.0}
    _, panels = drawn(spec)
    width = int(SMALL["d_model"] / SMALL["heads"] * partial)
    frequency = 100.0 ** (-np.arange(0, width, 2) / width)
    turns = np.arange(LENGTH)[:, None] * frequency / (2 * np.pi)
    np.testing.assert_allclose(panels["angles"].data["mean"].T, turns, atol=1e-4)
    short = (turns[SMALL["trained"] - 1] < 1).sum()
    assert f"{short} of {len(frequency)} pairs" in panels["angles"].caption


def test_each_group_of_heads_has_its_own_rotation():
    _, panels = drawn({"name": "heads", "of": ["pope", "rope"]})
    for key, of in (("angles", "pope"), ("angles_2", "rope")):
        alone = drawn(of)[1]["angles"].data["mean"]
        np.testing.assert_array_equal(panels[key].data["mean"], alone)
    assert panels["angles_2"].title.endswith("(head 2)")


def test_angles_of_dimensions_that_become_complex_numbers():
    _, panels = drawn("pope")
    width = SMALL["d_model"] // SMALL["heads"]
    turns = np.arange(LENGTH)[:, None] * 10000.0 ** (-np.arange(width) / width) / (2 * np.pi)
    np.testing.assert_allclose(panels["angles"].data["mean"].T, turns, atol=1e-4)


def test_attention_follows_the_scores_and_is_uniform_without_any():
    _, panels = drawn("alibi")
    steep, flat = panels["attention"].data["mean"]
    assert steep[0] > 2 * steep[-1]  # near keys before far ones
    assert abs(flat.mean() - 1) < 0.1
    _, panels = drawn("none")
    assert np.abs(panels["attention"].data["mean"].mean(1) - 1).max() < 0.1


def test_every_problem_is_reported_at_once():
    with pytest.raises(InputError) as caught:
        read_specs(["ropee", "{name: alibi, slope: 3}", "rope"])
    assert str(caught.value).splitlines() == [
        "no encoding 'ropee'; did you mean 'rope'?", "encoding.slope: unknown key; did you mean 'slopes'?",
    ]  # fmt: skip
