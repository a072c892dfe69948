"""Bounds of options stand in annotations; a recipe with a number out of bounds is refused with its key."""

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
    "path": {"rank": 0, "kernel": 0},
    "selective_rope": {"base": 1.0, "rank": 0, "kernel": 0},
    "repo": {"start": -1, "base": 1.0},
    "cope": {"max_positions": 1},
    "dape": {"hidden": 0},
    "shaw": {"max_distance": 0},
    "transformer_xl": {"clamp": 0},
    "pose": {"max_position": 0},
    "shape": {"max_offset": 0, "evaluation_offset": -1},
    "cape": {"max_global_shift": -1.0, "max_local_shift": float("nan"), "max_scale": 0.5},
    "entmax": {"alpha": 1.0},
    "drope": {"scale": -0.1, "factor": 0.5},
}


def test_a_number_out_of_bounds_is_refused_with_its_key(mapping):
    for name, options in WRONG.items():
        made = mapping("text")
        inside = {"of": "sinusoidal"} if name in ("cape", "shape", "pose", "dape") else {}
        made["model"] = {**made["model"], "encoding": {"name": name, **inside, **options}}
        with pytest.raises(InputError) as caught:
            resolve(made)
        assert {problem.key for problem in caught.value.problems} == {
            f"model.encoding.{key}" for key in options
        }
