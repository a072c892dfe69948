"""Every law on every encoding: as it comes, with each value that its options list, around others, in lists;
and on three plugins that use the hooks which the zoo's own leave alone."""

import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from zoo import registry
from zoo.contract import LAWS
from zoo.contract.subject import kinds_of, subjects_of, subjects_with, wraps
from zoo.contract.training import train_in_two
from zoo.errors import InputError
from zoo.recipe.encoding import check_encoding

PLUGINS = sorted((Path(__file__).parents[1] / "encodings" / "plugins").glob("*.py"))

TOGETHER = [
    ["rope", "fox"],
    ["rope", "forget_gate"],
    ["alibi", "counted"],
    ["t5", "shaw"],
    ["sinusoidal", {"name": "shaken", "of": "rope"}],
]
# What an option means only beside another, and what no list of values shows.
BESIDE = [
    *(
        {"name": "rope", "scaling": scaling, "factor": 4.0}
        for scaling in ("linear", "ntk", "dynamic_ntk", "yarn", "longrope", "llama3")
    ),
    {"name": "rope", "scaling": "proportional", "proportion": 0.5},
    {"name": "rope", "partial": 0.5, "layout": "interleaved"},
    {"name": "alibi", "learned": True, "form": "one_sided"},
    {"name": "rerope", "window": 3, "leak": 0.2},
    {"name": "transformer_xl", "clamp": 5},
    {"name": "shaw", "max_distance": 3},
    {"name": "deberta", "position_buckets": 4, "max_distance": 9},
    {"name": "cope", "max_positions": 4},
    {"name": "randomized", "of": {"name": "learned", "table_length": 2048}},
    {"name": "dape", "of": "none"},
]
# In models with scaled attention: an encoding for each hook, and none.
SCALED = {
    "scalable_softmax": [
        *("none", "rope", "alibi", "t5", "fox", "transformer_xl", "counted", "cope", "shaw"),
        ["rope", "alibi"],
    ],
    "log_n": ["rope", "t5", "cope"],
}
# The laws about what a model computes; the others are about the encoding by itself.
OF_MODELS = {
    f"zoo.contract.{module}" for module in ("causality", "kernel_equivalence", "numerics", "training")
}


@contextmanager
def plugins_known():
    """The three plugins among the zoo's own, as long as the subjects are gathered."""
    before = dict(registry.encodings.added)
    for file in PLUGINS:
        registry.read_plugin(file)
    yield
    registry.encodings.added.clear()
    registry.encodings.added.update(before)


@plugins_known()
def _subjects():
    found, refused = [], []
    for name in registry.encodings.names():
        accepted, others = subjects_of(registry.encodings.describe(name))
        found += accepted
        refused += others
    for spec in [*TOGETHER, *BESIDE]:
        found += subjects_with(spec)
    for scale, specs in SCALED.items():
        for subject in (one for spec in specs for one in subjects_with(spec)):
            found.append(replace(subject, is_default=False, config={"logit_scale": scale}))
    # What a law applies to is asked while the plugins are known.
    return found, refused, [(law, subject) for law in LAWS for subject in found if _applies(law, subject)]


def _applies(law, subject):
    if subject.config and law.trial.__module__ not in OF_MODELS:
        return False
    try:
        return law.does_not_apply(subject) is None
    except Exception:
        # It cannot be built; the first law reports that.
        return law is LAWS[0]


SUBJECTS, REFUSED, PAIRS = _subjects()
BY_TWO = next(law for law in LAWS if law.name == "two processes train one model")
ONE_GRAPH = next(law for law in LAWS if law.name == "torch.compile needs no graph break")
FUSED = next(law for law in LAWS if law.name == "the fused kernel equals the reference")
GROWTH = next(law for law in LAWS if law.name == "memory grows with the length, not its square")

pytestmark = pytest.mark.usefixtures("plugins")


def _marked(law, subject):
    # The default run has each encoding as it comes, and nothing that takes seconds.
    rare = not subject.is_default or law in (ONE_GRAPH, FUSED, GROWTH)
    name = f"{subject}-{law.name}".replace(" ", "_")
    return pytest.param(law, subject, id=name, marks=pytest.mark.slow if rare else ())


@pytest.mark.parametrize(
    ("law", "subject"), [_marked(law, subject) for law, subject in PAIRS if law is not BY_TWO]
)
def test_every_law_holds(law, subject):
    finding = law.try_on(subject)
    assert finding.held, f"{subject}: {finding.numbers}\n{law.statement}"


@pytest.mark.launch
def test_two_processes_train_every_encoding():
    """One pair of processes for all: starting it takes longer than a model."""
    tried = [subject for law, subject in PAIRS if law is BY_TWO and subject.is_default]
    assert len(tried) > 10
    assert_trained(tried)


@pytest.mark.slow
def test_two_processes_train_every_variant():
    tried = [subject for law, subject in PAIRS if law is BY_TWO and not subject.is_default]
    assert_trained(tried)


def assert_trained(subjects):
    findings = zip(subjects, train_in_two(subjects), strict=True)
    faults = {str(subject): finding.numbers for subject, finding in findings if not finding.held}
    assert not faults, json.dumps(faults, indent=2)


def test_every_encoding_is_tried():
    for name in registry.encodings.names():
        description = registry.encodings.describe(name)
        kinds = {one.kind for one in SUBJECTS if one.descriptions == [description]}
        assert kinds and (kinds == set(kinds_of(name)) or any(map(wraps, description.options)))


def test_every_law_applies_to_some():
    tried = {law.name: sum(one is law for one, _ in PAIRS) for law in LAWS}
    assert not [name for name, count in tried.items() if count < 2], tried


def test_what_was_left_out_was_refused_with_a_reason():
    for subject, reason in REFUSED:
        assert len(reason) > 20, f"{subject}: {reason}"


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if not isinstance(s.spec, list)], ids=str)
def test_a_recipe_can_say_it(subject):
    resolved, faults = check_encoding(subject.spec, ("encoding",))
    assert not faults
    assert resolved["name"] == subject.descriptions[0].name


def test_two_that_decide_the_product_are_refused_together():
    with pytest.raises(InputError, match="cannot be combined"):
        _ = subjects_with(["rope", {"name": "rope", "layout": "interleaved"}])[0].stack
