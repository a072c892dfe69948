"""Options that cannot be: numbers out of their bounds, and options or encodings that do not fit together."""

import pytest

from zoo.errors import InputError
from zoo.recipe import resolve

WRONG = {
    "rope": {"base": 1.0, "partial": 1.5, "proportion": -0.1, "factor": 0.5, "attention_factor": 0.0},
    "rope_clipped": {"base": 0.0, "clipped": 1.1},
    "rerope": {"window": 0, "leak": 1.5},
    "self_extend": {"window": 0, "group": 0},
    "string": {"window": 0, "local": 0},
    "dual_chunk": {"longest": 0, "window": 0},
    "fope": {"base": 1.0, "gain": -0.1},
    "hard_alibi": {"masked": -1},
    "xpos": {"base": 1.0, "scale_base": 0.0},
    "pope": {"base": 1.0},
    "sinusoidal": {"base": 0.5},
    "fire": {"width": 0, "c": 0.0, "threshold": -1.0},
    "dpb": {"width": 0, "depth": 0},
    "grape_m": {"base": 1.0},
    "path": {"rank": 0, "kernel": 0},
    "selective_rope": {"base": 1.0, "rank": 0, "kernel": 0},
    "repo": {"start": -1, "base": 1.0},
    "cope": {"max_positions": 1},
    "dape": {"hidden": 0},
    "shaw": {"max_distance": 0},
    "inkling": {"curves": 0, "max_distance": 0},
    "transformer_xl": {"clamp": 0},
    "pose": {"max_position": 0},
    "position_coupling": {"max_position": 1},
    "bipe": {"table_length": 0, "stride": 0},
    "shape": {"max_offset": 0, "evaluation_offset": -1},
    "cape": {"max_global_shift": -1.0, "max_local_shift": float("nan"), "max_scale": 0.5},
    "entmax": {"alpha": 1.0},
    "drope": {"scale": -0.1, "factor": 0.5},
}


def test_a_number_out_of_bounds_is_refused_with_its_key(mapping):
    for name, options in WRONG.items():
        made = mapping("text")
        inside = {"of": "sinusoidal"} if name in ("cape", "shape", "pose", "dape", "bipe") else {}
        made["model"] = {**made["model"], "encoding": {"name": name, **inside, **options}}
        with pytest.raises(InputError) as caught:
            resolve(made)
        assert {problem.key for problem in caught.value.problems} == {
            f"model.encoding.{key}" for key in options
        }


ROPE, LEARNED = {"name": "rope"}, {"name": "learned", "table_length": 30}
HEADS, RANDOMIZED = {"name": "heads"}, {"name": "randomized", "of": "rope"}
CAPE, DEBERTA, POSE = {"name": "cape"}, {"name": "deberta"}, {"name": "pose", "of": "rope"}
REFUSED = (
    (ROPE | {"original_length": 64}, "original_length does nothing with scaling none: it is for dynamic_ntk"),
    (ROPE | {"beta_fast": 8.0, "scaling": "linear", "factor": 2.0}, "beta_fast does nothing with"),
    (ROPE | {"long_factor": [1.0] * 4, "scaling": "llama3"}, "long_factor does nothing with scaling llama3"),
    (ROPE | {"original_length": 0, "scaling": "yarn"}, "original_length is in tokens, at least 2, not 0"),
    (ROPE | {"partial": 0.25, "scaling": "ntk"}, "scaling ntk needs two pairs"),
    (ROPE | {"partial": 0.25, "scaling": "dynamic_ntk"}, "scaling dynamic_ntk needs two pairs"),
    (ROPE | {"beta_fast": 1.0, "scaling": "yarn"}, "both above 0, not 1.0 and 1.0"),
    (ROPE | {"high_freq_factor": 0.5, "scaling": "llama3"}, "both above 0, not 1.0 and 0.5"),
    *((ROPE | {"scaling": scaling}, f"scaling {scaling} with factor 1 changes nothing")
      for scaling in ("linear", "ntk", "yarn", "longrope", "llama3")),
    (ROPE | {"long_factor": [1.0], "scaling": "longrope"}, "long_factor lists a divisor for each of the 4"),
    ({"name": "t5", "num_buckets": 1}, "num_buckets must be even and leave two"),
    ({"name": "t5", "max_distance": 16}, "max_distance must be above 16"),
    *(({"name": "sandwich", "dim": dim}, f"must be even and at least 2, not {dim}") for dim in (0, 7, -2)),
    ({"name": "cope", "max_positions": 2**62}, "encoding 'cope' cannot be built: RuntimeError"),
    ({"name": "dpb", "depth": 2**30}, "depth must be at most 100"),
    ({"name": "hard_alibi", "masked": 7}, "masked is 7, but the model has 6 heads"),
    *(({"name": "dape", "of": of}, f"'{of}' does more than add a bias")
      for of in ("rope", "sinusoidal", "shaw")),
    (DEBERTA | {"position_buckets": 2}, "position_buckets must be even and at least 4, not 2"),
    (DEBERTA | {"position_buckets": 7}, "position_buckets must be even and at least 4, not 7"),
    (DEBERTA | {"max_distance": 129}, "max_distance must be at least 130 with these buckets, not 129"),
    (DEBERTA | {"position_buckets": None, "max_distance": 0}, "max_distance must be at least 1"),
    *(({"name": name, "of": "none"}, f"encoding '{name}': 'none' reads no positions")
      for name in ("shape", "randomized", "pose", "cape")),
    ({"name": "shape", "of": "rope"}, "'rope' is relative"),
    (RANDOMIZED | {"max_position": 15}, "max_position 15 is below the trained length 17"),
    (RANDOMIZED | {"of": "sinusoidal", "draw": "layer"}, "'sinusoidal' is met once, before the first layer"),
    (RANDOMIZED | {"of": "t5", "continuous": True}, "'t5' takes integer positions from 0 on only"),
    (POSE | {"max_position": 15}, "max_position 15 is below the trained length 17"),
    (POSE | {"of": LEARNED, "max_position": 31}, "only 30: give it table_length: 31"),
    *((CAPE | {"of": of}, f"'{of}' takes integer positions") for of in ("learned", "t5", "shaw")),
    (CAPE | {"of": RANDOMIZED}, "'randomized' takes integer positions"),
    *(({"name": "bipe", "of": of}, f"'{of}' {fault}")
      for of, fault in (("none", "reads no positions"), ("sinusoidal", "is not relative"))),
    (LEARNED | {"table_length": 8}, "table_length 8 is shorter than the trained length 17"),
    ({"name": "interleave", "pattern": ["rope", "none", "t5"]}, "num_layers is 2; the last 1 are unused"),
    (HEADS | {"of": ["rope", "sinusoidal"]}, r"acts on all heads \(it uses embed\)"),
    (HEADS | {"of": ["rope", RANDOMIZED]}, r"acts on all heads \(it uses positions\)"),
    (HEADS | {"of": ["rope", "none"], "counts": [2, 3]}, "share out 5 heads among 2 encodings, but"),
    (HEADS | {"of": ["rope", "none"], "counts": [2, 2, 2]}, "share out 6 heads among 3 encodings"),
    (HEADS | {"of": ["rope", "none", "t5", "alibi"]}, "no equal shares for 4 encodings: give `counts`"),
    (HEADS | {"of": ["rope", "none"] * 4}, "6 heads have no equal shares for 8 encodings"),
    ([HEADS | {"of": ["none", "entmax"]}, "sink"], "'heads' and 'sink' cannot be combined"),
    ([HEADS | {"of": ["none", "rope"]}, "rope"], "'heads' and 'rope' cannot be combined"),
)  # fmt: skip


def test_options_and_encodings_that_do_not_fit_are_refused(model_of):
    for spec, message in REFUSED:
        with pytest.raises(InputError, match=message):
            model_of(spec)


def test_a_width_or_number_of_buckets_that_cannot_be_halved_is_refused(model_of):
    for spec, kind, size, message in (
        ("transformer_xl", "decoder", {"d_model": 45, "num_heads": 5}, "an even d_model, not 45"),
        ("sinusoidal", "decoder", {"d_model": 15, "num_heads": 3}, "even d_model, not 15"),
        ("xpos", "decoder", {"d_model": 20, "num_heads": 4}, "a head of width 5 is not an even number"),
        ({"name": "t5", "num_buckets": 2}, "encoder", {}, "num_buckets must be even and leave two"),
        ({"name": "t5", "num_buckets": 9}, "encoder", {}, "num_buckets must be even"),
    ):
        with pytest.raises(InputError, match=message):
            model_of(spec, kind, **size)
