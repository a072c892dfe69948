"""All laws on all encodings: with defaults, with option values, around others and in lists.

The plugins of `tests/encodings/plugins` are among them: they use the hooks that the zoo's own do not.
"""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from zoo import registry
from zoo.contract import LAWS
from zoo.contract.law import examine
from zoo.contract.subject import kinds_of, subjects_of, subjects_with
from zoo.contract.training import train_in_two
from zoo.recipe.encoding import check_encoding

PLUGINS = sorted((Path(__file__).parents[1] / "encodings" / "plugins").glob("*.py"))

LISTS = [
    ["rope", "fox"],
    ["path", "fox"],
    ["path", "sinusoidal"],
    ["pope", "alibi"],
    ["rope", "forget_gate"],
    ["alibi", "counted"],
    ["rope", "clipped_softmax"],
    ["alibi", "sink"],
    ["fire", "entmax"],
    ["rope", "stick_breaking"],
    ["t5", "shaw"],
    ["sinusoidal", {"name": "shaken", "of": "rope"}],
]
# Options that need another, and options without a list of values.
OPTIONS = [
    *(
        {"name": "rope", "scaling": scaling, "factor": 4.0}
        for scaling in ("linear", "ntk", "dynamic_ntk", "yarn", "longrope", "llama3", "resonance")
    ),
    {"name": "rope", "scaling": "proportional", "proportion": 0.5},
    {"name": "rope", "partial": 0.5, "layout": "interleaved"},
    {"name": "heads", "of": ["rope", {"name": "rope", "imaginary": True}]},
    {"name": "alibi", "learned": True, "form": "one_sided"},
    {"name": "rerope", "window": 3, "leak": 0.2},
    {"name": "transformer_xl", "clamp": 5},
    {"name": "shaw", "max_distance": 3},
    {"name": "inkling", "max_distance": 3, "offset": True},
    *(
        {"name": "bipe", "of": of, "separators": list(range(0, 29, 4)), "table_length": 4, "stride": 2}
        for of in ("rope", "alibi", "shaw")
    ),
    {"name": "deberta", "position_buckets": 4, "max_distance": 9},
    {"name": "cope", "max_positions": 4},
    {"name": "randomized", "of": {"name": "learned", "table_length": 2048}},
    {"name": "interleave", "pattern": ["rope", {"name": "randomized", "of": "rope"}]},
    {"name": "dape", "of": "none"},
    {"name": "repo", "start": 1},
    {"name": "dape", "of": "hard_alibi"},
    {"name": "entmax", "alpha": 2.0},
    {"name": "entmax", "alpha": 1.25},
]
# In models with other logits, and in decoders with a window, gates, shifts and shared keys.
BY_POSITION = {"name": "temperature", "scale": 0.9, "length": 2}
MODELS = [
    ({"logit_scale": "scalable_softmax"},
     ["none", "rope", "alibi", "t5", "fox", "transformer_xl", "shaw", ["rope", "alibi"]]),
    ({"logit_scale": "log_n"}, ["rope", "t5", "cope"]),
    ({"logit_scale": "adaptive"}, ["none", "alibi", ["t5", "entmax"], "transformer_xl"]),
    ({"window": (3, None)}, ["rope", "t5", "fox", "cope", "shaw"]),
    ({"num_kv_heads": 2, "qk_norm": True}, ["alibi", "shaw"]),
    ({"logit_scale": "log_n", "window": 5}, ["none", {"name": "alibi", "form": "one_sided"}, "fox"]),
    ({"logit_scale": "scalable_softmax", "window": (4, None)}, ["rope", "cope", "shaw"]),
    ({"logit_scale": BY_POSITION, "window": 4}, ["alibi", "transformer_xl", ["rope", "alibi"]]),
    ({"logit_scale": "log_n", "window": 4, "sink_tokens": 2},
     ["rope", "alibi", "t5", "shaw", "cope", "rerope", "fire", ["alibi", "fox"]]),
    ({"output_gate": "elementwise", "num_kv_heads": 2}, ["rope"]),
    ({"kv_shift": True}, ["rope"]),
    ({"kv_shift": True, "num_kv_heads": 2, "head_norm": True, "norm_eps": 1e-3}, ["rope"]),
    ({"kv_shift": True, "qk_norm": True, "head_norm": True, "output_gate": "elementwise"}, ["rope"]),
]  # fmt: skip
# The laws about what a model computes; the others are about the encoding by itself.
OF_MODELS = {
    f"zoo.contract.{module}" for module in ("causality", "kernel_equivalence", "numerics", "training")
}
TWO_PROCESSES = "two processes train one model"
FUSED = "the fused kernel equals the reference"
EXPENSIVE = {
    FUSED,
    "torch.compile needs no graph break",
    "memory grows with the length, not its square",
}
CHEAP = [law for law in LAWS if law.name not in EXPENSIVE | {TWO_PROCESSES}]
EVERYWHERE = {"causality", "cached decoding equals the full forward", "padding changes nothing"}
"""The laws that the default tests try with some options and lists too."""


@contextmanager
def plugins_known():
    """The plugins among the zoo's own, while the subjects are gathered."""
    found = [one for file in PLUGINS for one in registry.load_plugin(file)]
    yield
    for one in found:
        del registry.encodings.entries[one.name]


@plugins_known()
def _subjects():
    """The encodings with defaults in all kinds of model, the others by turns in a decoder or an encoder."""
    defaults, others = [], []
    # First, so that the kind of model in which each is tried does not depend on the encodings there are.
    for config, specs in MODELS:
        for subject in (one for spec in specs for one in subjects_with(spec)):
            if subject.kind == "decoder" or [*config] == ["logit_scale"]:
                others.append(replace(subject, is_default=False, config=config))
    for name in registry.encodings.names():
        for subject in subjects_of(registry.encodings.describe(name))[0]:
            # Without a factor the scaling of rope does nothing: OPTIONS has it with one.
            if subject.is_default or "rope scaling" not in str(subject):
                (defaults if subject.is_default else others).append(subject)
    for spec in [*LISTS, *OPTIONS]:
        others += subjects_with(spec)
    kinds = {}
    for subject in others:
        kinds.setdefault(subject.label, []).append(subject)
    return defaults, [both[index % len(both)] for index, both in enumerate(kinds.values())]


DEFAULTS, OTHERS = _subjects()
pytestmark = pytest.mark.usefixtures("plugins")


def assert_holds(subjects, laws):
    """Assert that no subject breaks a law; the message has every broken law with its numbers."""
    verdicts = examine(subjects, laws)
    broken = [
        f"{subject}: {verdict.law.name}: {found.numbers}"
        for verdict in verdicts
        for subject, found in verdict.failures
    ]
    assert not broken, "\n".join(broken)
    return verdicts


def is_of_first_kind(subject):
    return subject.kind == kinds_of(subject.spec)[0]


# In the other kind of model the trial is slow.
TRIALS = [pytest.param(one, marks=() if is_of_first_kind(one) else pytest.mark.slow) for one in DEFAULTS]


@pytest.mark.parametrize("subject", TRIALS, ids=str)
def test_all_cheap_laws_hold(subject):
    assert_holds([subject], CHEAP)


@pytest.mark.parametrize("law", [law for law in CHEAP if law.name in EVERYWHERE], ids=lambda law: law.name)
def test_causality_padding_and_decoding_hold_with_options_and_in_lists(law):
    assert_holds(OTHERS[::6], [law])


@pytest.mark.slow
@pytest.mark.parametrize("subject", OTHERS, ids=str)
def test_all_cheap_laws_hold_with_options_and_in_lists(subject):
    assert_holds([subject], [law for law in CHEAP if not subject.config or law.trial.__module__ in OF_MODELS])


@pytest.mark.slow
@pytest.mark.parametrize("subject", DEFAULTS, ids=str)
def test_all_expensive_laws_hold(subject):
    # Compilation and memory in the other kind of model: some encodings stand for all.
    every = is_of_first_kind(subject) or DEFAULTS.index(subject) % 4 == 0
    assert_holds([subject], [law for law in LAWS if law.name in (EXPENSIVE if every else {FUSED})])


@pytest.mark.launch
def test_two_processes_train_every_encoding():
    """One pair of processes for all: starting it takes longer than a model."""
    law = next(law for law in LAWS if law.name == TWO_PROCESSES)
    trained = [subject for subject in [*DEFAULTS, *OTHERS[::8]] if law.does_not_apply(subject) is None]
    faults = dict(zip(map(str, trained), train_in_two(trained), strict=True))
    assert len(trained) > 25 and not any(faults.values()), faults


def test_every_encoding_is_tried_in_each_of_its_kinds_of_model():
    for name in registry.encodings.names():
        description = registry.encodings.describe(name)
        kinds = {one.kind for one in DEFAULTS if one.descriptions == [description]}
        assert kinds and (kinds == set(kinds_of(name)) or description.wrapping)


def test_every_law_applies_to_some_encodings():
    for law in LAWS:
        assert sum(law.does_not_apply(subject) is None for subject in DEFAULTS) > 1, law.name


def test_a_recipe_accepts_every_subject():
    for subject in [*DEFAULTS, *OTHERS]:
        if not isinstance(subject.spec, list):
            resolved, faults = check_encoding(subject.spec, ("encoding",))
            assert not faults, subject
            assert resolved["name"] == subject.descriptions[0].name


def test_values_that_an_encoding_refuses_are_left_out():
    _, refused = subjects_of(registry.encodings.describe("rope"))
    needs_factor = [f"scaling={name}" for name in ("linear", "ntk", "yarn", "longrope", "llama3")]
    assert {str(subject) for subject, _ in refused} == {
        f"rope {option} {kind}"
        for option in ("truncate=False", *needs_factor)
        for kind in ("decoder", "encoder")
    }
    reasons = {str(subject): reason for subject, reason in refused}
    assert "it is for yarn" in reasons["rope truncate=False decoder"]
    assert "factor" in reasons["rope scaling=yarn decoder"]
