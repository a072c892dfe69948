"""Options of an encoding that may be changed on a trained model, and options that may not."""

import pytest
import torch
import yaml

import zoo
from zoo import registry
from zoo.errors import InputError
from zoo.recipe import read_recipe, resolve
from zoo.recipe.encoding import changed_label, encoding_changes, may_change
from zoo.reports.fit import fit
from zoo.runs.load import load_run

pytestmark = pytest.mark.usefixtures("unmeasured")

ROPE = "{name: rope, base: 500.0, layout: interleaved, partial: 0.5}"


@pytest.fixture
def run_of(here, recipe, tmp_path_factory):
    """A run with an encoding, which is trained once."""

    def run_of(encoding):
        folder = tmp_path_factory.getbasetemp() / f"run of {encoding[:15]}"
        if not folder.exists():
            fit(recipe("text", f"model.encoding={encoding}", "trainer.max_steps=2"), out=folder)
        return folder

    return run_of


@pytest.fixture
def rope(run_of):
    """A run with a rope that is nowhere at its defaults."""
    return run_of(ROPE)


def encoding_of(folder, *sets):
    return load_run(folder, sets).task.model.encoding.layer(0).encodings[0]


def test_a_scaling_is_laid_over_a_trained_rope(rope):
    task = load_run(rope, ["model.encoding.scaling=linear", "model.encoding.factor=4"]).task
    assert task.changed == {"model.encoding.scaling": "linear", "model.encoding.factor": 4.0}
    plain, scaled = encoding_of(rope), task.model.encoding.layer(0).encodings[0]
    torch.testing.assert_close(scaled.frequency, plain.frequency / 4)
    tokens = torch.randint(300, (1, 40), generator=torch.Generator().manual_seed(0))
    assert (zoo.load(rope)(tokens) - task.model(tokens)).abs().max() > 1e-4
    sets = ["model.encoding.scaling=linear", "model.encoding.factor=4"]
    assert torch.equal(zoo.load(rope, sets=sets)(tokens), task.model(tokens))


@pytest.mark.parametrize("asked", ["{name: rope, scaling: linear, factor: 2}", "rope"], ids=str)
def test_an_option_that_is_not_set_stays_as_trained(rope, asked):
    now = encoding_of(rope, f"model.encoding={asked}")
    assert now.layout == "interleaved" and now.frequency.shape == (2,)
    assert now.frequency[1].item() == pytest.approx(500**-0.5 / (2 if "linear" in asked else 1))


@pytest.mark.parametrize(("asked", "own"), [
    ("model.encoding={name: rerope, window: 5, leak: 0.25}", {"window": 5, "leak": 0.25}),
    ("model.encoding.name=self_extend", {"window": 4, "group": 8}),
])  # fmt: skip
def test_another_takes_the_place_of_rope_and_its_rotation(rope, asked, own):
    now, plain = encoding_of(rope, asked), encoding_of(rope)
    assert {name: getattr(now, name) for name in own} == own
    assert now.layout == "interleaved"
    assert torch.equal(now.frequency, plain.frequency)
    # Within the window it is the trained model.
    tokens = torch.randint(300, (2, 4))
    torch.testing.assert_close(load_run(rope, [asked]).task.model(tokens), zoo.load(rope)(tokens))


def test_a_window_with_sink_tokens_and_a_scale_are_laid_over_a_trained_model(rope):
    scale = {"name": "temperature", "scale": 0.5, "length": 2, "offset": 1, "heads": "all"}
    sets = {"model.window": 4, "model.sink_tokens": 2, "model.logit_scale": scale}
    task = load_run(rope, [f"{key}={value}" for key, value in sets.items()]).task
    assert task.changed == sets
    label = changed_label(task.recipe.as_dict()["model"]["encoding"], task.changed)
    assert label.startswith("rope model.window=4 model.sink_tokens=2 model.logit_scale=")
    tokens, plain = torch.randint(300, (2, 12)), zoo.load(rope)
    near = load_run(rope, ["model.window=4", "model.sink_tokens=2"]).task.model
    # Six tokens are a cache that is full; the scale begins with the second.
    torch.testing.assert_close(near(tokens[:, :6]), plain(tokens[:, :6]))
    torch.testing.assert_close(task.model(tokens[:, :1]), plain(tokens[:, :1]))
    assert (near(tokens) - plain(tokens)).abs()[:, 6:].amax(-1).min() > 1e-6
    with pytest.raises(InputError, match=r"do not fit its recipe: Missing key.*logit_scale\.s"):
        load_run(rope, ["model.logit_scale=scalable_softmax"])


@pytest.mark.parametrize(("change", "key", "why"), [
    ("model.encoding=alibi", "model.encoding", "trained with 'rope', and 'alibi' would make it another"),
    ("model.encoding=[rope, alibi]", "model.encoding", "'.rope[+]alibi.' would make it another"),
    ("model.encoding.partial=1.0", "model.encoding.partial", "trained with 0.5, and 1.0 would"),
    ("model.d_model=32", "model.d_model", "trained with 16, and 32 would make it another"),
    ("init_from=runs/x", "init_from", "trained with None"),
    ("data.vocab_size=500", "data.vocab_size", "to score other data, give --data NAME"),
])  # fmt: skip
def test_a_change_that_makes_it_another_model_is_refused(rope, change, key, why):
    with pytest.raises(InputError, match=why) as caught:
        load_run(rope, [change])
    (problem,) = caught.value.problems
    assert problem.key == key and problem.where == str(rope)
    assert "model.encoding.factor" in problem.message  # what can be changed here


def test_an_encoding_that_declares_nothing_cannot_be_changed(run_of):
    folder = run_of("t5")
    with pytest.raises(InputError, match=r"model\.encoding\.num_buckets: the run was trained with 32"):
        load_run(folder, ["model.encoding.num_buckets=16"])
    with pytest.raises(InputError, match=r"trained with 't5', and 'rerope' would make it another"):
        load_run(folder, ["model.encoding=rerope"])


def resolved(mapping, encoding):
    return resolve(mapping("text"), [f"model.encoding={encoding}"]).as_dict()["model"]["encoding"]


def changes(mapping, before, *sets):
    recipe = resolve(mapping("text"), [f"model.encoding={before}"]).as_dict()
    after = resolve(recipe, sets, trained=True).as_dict()["model"]["encoding"]
    found = [*encoding_changes(recipe["model"]["encoding"], after)]
    allowed = {key: new for key, _, new, may in found if may}
    return allowed, [key for key, *_, may in found if not may], changed_label(after, allowed)


def test_encodings_of_a_list_are_changed_one_by_one(mapping):
    sets = "model.encoding.1=rerope", "model.encoding.1.window=8"
    allowed, refused, label = changes(mapping, "[alibi, rope]", *sets)
    assert refused == [] and allowed["model.encoding.1.name"] == "rerope"
    assert label == "alibi+rerope 1.window=8"
    sets = "model.encoding.1.scaling=ntk", "model.encoding.1.factor=2"
    *_, label = changes(mapping, "[alibi, rope]", *sets)
    assert label == "alibi+rope 1.scaling=ntk 1.factor=2"
    for change, key in (("=[alibi]", ""), (".0.slopes=geometric", ".0.slopes")):
        _, refused, _ = changes(mapping, "[alibi, rope]", f"model.encoding{change}")
        assert refused == [f"model.encoding{key}"]


WRAPPER = '''\
import zoo


@zoo.register("around")
class Around(zoo.Encoding):
    """Around another."""

    def __init__(self, size, *, of: zoo.Encoding, strength: float = 1.0):
        super().__init__(size)

'''


def test_a_wrapped_one_is_changed_where_it_is(mapping, here, forgetful_registry):
    (here / "around.py").write_text(WRAPPER)
    forgetful_registry.load_plugin(here / "around.py")
    trained = "{name: around, of: {name: rope, base: 500.0}}"
    allowed, refused, label = changes(mapping, trained, "model.encoding.of=self_extend")
    assert refused == [] and label == "around(self_extend)"
    assert allowed["model.encoding.of.name"] == "self_extend"
    after = resolve(
        resolve(mapping("text"), [f"model.encoding={trained}"]).as_dict(),
        ["model.encoding={name: around, of: self_extend}"], trained=True,
    )  # fmt: skip
    assert after.model.encoding["of"]["base"] == 500.0
    _, refused, _ = changes(mapping, trained, "model.encoding.strength=2.0")
    assert refused == ["model.encoding.strength"]
    assert "model.encoding.of.factor" in may_change(resolved(mapping, trained))


def test_a_replacement_that_lacks_what_was_trained_with_is_refused(mapping, monkeypatch):
    monkeypatch.setattr(registry.encodings.load("rope_clipped"), "replaces", ("rope",), raising=False)
    trained = "{name: rope, scaling: linear, factor: 2}"
    _, refused, _ = changes(mapping, trained, "model.encoding=rope_clipped")
    assert refused == ["model.encoding.scaling", "model.encoding.factor"]
    allowed, refused, _ = changes(mapping, trained, "model.encoding=rerope")
    assert not refused and allowed["model.encoding.name"] == "rerope"


def test_the_trained_value_is_not_a_change(mapping):
    sets = "model.encoding.base=10000", "model.encoding.scaling=none"
    assert changes(mapping, "rope", *sets) == ({}, [], "rope")
    # Back to a default is one, where another value was trained.
    *_, label = changes(mapping, "{name: drope, scale: 0.103}", "model.encoding.scale=0.412")
    assert label == "drope scale=0.412"


@pytest.mark.parametrize(
    ("encoding", "key"),
    [("{name: self_extend, window: 3}", "model.encoding"), ("[alibi, rerope]", "model.encoding.1")],
)  # fmt: skip
def test_nothing_is_trained_with_one_that_is_for_evaluation(here, recipe, mapping, encoding, key):
    with pytest.raises(InputError, match=rf"^{key}: \w+ is for evaluation: train with rope"):
        fit(recipe("text", f"model.encoding={encoding}"))
    # Of a file it is reported with the line, like any other fault.
    written = mapping("text")
    made = {**written, "model": {**written["model"], "encoding": yaml.safe_load(encoding)}}
    (here / "file.yaml").write_text(yaml.safe_dump(made))
    with pytest.raises(InputError, match=rf"file\.yaml:\d+: {key}: \w+ is for evaluation"):
        read_recipe(here / "file.yaml")
