"""Options that several architectures read, write or hold alike: rotary embedding, activation, windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from zoo.pretrained.architecture import Model
from zoo.pretrained.config import NONE, NUMBER, REQUIRED, Config

SIZE_NAMES = {
    "d_model": ("hidden_size",), "num_layers": ("num_hidden_layers",), "num_heads": ("num_attention_heads",),
    "d_ff": ("intermediate_size",), "norm_eps": ("rms_norm_eps",), "tie_embeddings": ("tie_word_embeddings",),
}  # fmt: skip
SIZES = dict.fromkeys(
    ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
     "max_position_embeddings"), REQUIRED
)  # fmt: skip
EQUAL_SCALINGS = ("none", "linear", "ntk", "yarn", "llama3")
"""Scalings of RoPE that do not depend on the length of the sequence at hand, and are the same in both."""
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}
GATES = {
    "silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "gelu_new": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh", "gelu_fast": "geglu_tanh",
}  # fmt: skip
THEIR_GATES = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_pytorch_tanh"}
LAYER_TYPES = "full_attention", "sliding_attention"
"""Names of layers without and with a window."""
ORIGINAL = "original_max_position_embeddings"
SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": REQUIRED},
    "dynamic": {"factor": REQUIRED},
    "yarn": {
        "factor": REQUIRED, ORIGINAL: None, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True,
        "attention_factor": None,
    },
    "longrope": {
        "factor": None, ORIGINAL: None, "short_factor": REQUIRED, "long_factor": REQUIRED,
        "attention_factor": None,
    },
    "llama3": {"factor": REQUIRED, ORIGINAL: None, "low_freq_factor": REQUIRED, "high_freq_factor": REQUIRED},
}  # fmt: skip
"""The options of each type of scaling, named as ours, and their defaults."""
OLDER = (
    "rope_theta", "rope_scaling", "rotary_emb_base", "rotary_pct", "rope_local_base_freq",
    "global_rope_theta", "local_rope_theta", "global_attn_every_n_layers",
)  # fmt: skip
"""Keys that `transformers` 4, vLLM and llama.cpp read, and that `transformers` 5 leaves out.

An architecture writes None where they cannot hold a model.
"""


def rope(
    config: Config, base: float, partial: float | None = None, width: int = 0, original: int | None = None
) -> dict[str, Any]:
    """The encoding of an architecture with rotary embedding: `rope` with its base and its scaling.

    Since version 5 `transformers` keeps all of it under `rope_parameters`, before in several keys; of both
    sections it reads `rope_scaling`.

    Args:
        base, partial: where the section does not say; no `partial` for an architecture that rotates whole
            heads.
        width: of a head, where there is a `partial`.
        original: the original length of an architecture that has a key for it, which goes before the section.
    """
    length = config.take("max_position_embeddings")
    config.taken.update(("rope_parameters", "rope_scaling"))
    section = "rope_scaling" if config.values.get("rope_scaling") else "rope_parameters"
    given = config.section(section, _unscaled(base, 1.0 if partial is None else partial))
    spec = {"name": "rope", "base": float(given.take("rope_theta", kind=NUMBER))}
    if partial is not None:
        part = given.take("partial_rotary_factor", kind=NUMBER)
        # Some versions write these again, and read them in no other place.
        config.defaults |= {"rope_theta": spec["base"], "partial_rotary_factor": part}
        rotated = int(width * part)  # as `transformers` has it
        if width and (rotated % 2 or not 0 < rotated <= width):
            inside = "partial_rotary_factor" in given.values
            own = "rotary_pct" if "rotary_pct" in config.defaults else "partial_rotary_factor"
            key = given.prefix + "partial_rotary_factor" if inside else own
            config.problem(key, f"{part} of a head of width {width} is {rotated}, not a number of pairs")
        spec["partial"] = rotated / max(width, 1)
    return _scaled(given, spec, length, original)


def ropes(config: Config, thetas: Mapping[str, str], scaled: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The encoding of each type of layers: `rope_parameters` has a section for each since version 5.

    Args:
        thetas: the key with its base before, by type. A key of several types was read for all of them in
            `transformers` 4, and is for `scaled` alone in version 5.
        scaled: the types to which `rope_scaling` applied before.
    """
    length, found = config.take("max_position_embeddings"), {}
    shared = {thetas[kind] for kind in scaled}
    section = config.section("rope_parameters", {})
    before = config.section("rope_scaling", {})
    for kind, key in thetas.items():
        base = config.take(key, kind=NUMBER)
        given = section.section(kind, _unscaled(base, 1.0))
        differs = kind not in scaled and key in shared and base != config.defaults[key]
        if differs and "rope_theta" not in given.values:
            message = f"versions of `transformers` differ on {kind} layers: set rope_parameters.{kind}"
            config.problem(key, f"{message}.rope_theta")
        given.values = given.values | (before.values if kind in scaled else {})
        found[kind] = _scaled(
            given, {"name": "rope", "base": float(given.take("rope_theta", kind=NUMBER))}, length
        )
        if not found[kind].get("truncate", True):
            holder = before if "truncate" in before.values else given
            holder.problem("truncate", "is not read here by `transformers`: remove it, or set it to true")
    section.finish()
    return found


def _unscaled(base: float, partial: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": partial}


def _scaled(given: Config, spec: dict[str, Any], length: int, original: int | None = None) -> dict[str, Any]:
    """A rope with the scaling of its section, for a model of this length."""
    kind = given.take("rope_type", "type", kind=str)
    if kind not in SCALINGS:
        given.problem("rope_type", f"{kind!r} cannot be imported, only {', '.join(SCALINGS)}")
        return spec
    given.defaults |= SCALINGS[kind]
    given.reader, unscaled = f"rope_type {kind!r}", dict(spec)
    if kind != "default":
        spec["scaling"] = {"dynamic": "dynamic_ntk"}.get(kind, kind)
    if kind not in ("default", "linear"):
        inside = given.take(ORIGINAL, kind=(int, NONE))
        spec["original_length"] = original or inside or length
        if inside not in (None, spec["original_length"]):
            given.problem(ORIGINAL, f"{inside} is not the {original} beside this section, which is read")
    for key, default in SCALINGS[kind].items():
        if key != ORIGINAL:
            # Of these `transformers` takes the ratio of the lengths for a factor that is null.
            optional = (NONE,) if default is None or (kind, key) == ("yarn", "factor") else ()
            one = list if key in ("short_factor", "long_factor") else (float, int, *optional)
            value = given.take(key, kind=bool if default is True else one)
            if (key, value) == ("factor", None):
                value = length / max(spec["original_length"], 1)
                value = max(value, 1.0) if kind == "longrope" else value
            if value is not None:
                spec[key] = value if isinstance(value, bool | list) else float(value)
    if kind == "yarn" and spec["original_length"] < 2 * math.pi * spec["beta_slow"]:
        given.problem(ORIGINAL, "shorter than beta_slow turns of the fastest pair")
    given.finish()
    kept = kind in ("dynamic", "longrope") or "attention_factor" in spec
    changes_nothing = not kept and spec.get("factor") == 1
    return unscaled if changes_nothing else spec


def activation(config: Config, key: str, ours: Mapping[str, str] = ACTIVATIONS) -> str:
    """Ours for the one that a key names."""
    name = config.take(key, kind=str)
    if name not in ours:
        config.problem(key, f"{name!r} cannot be imported, only {', '.join(ours)}")
    return ours.get(name, next(iter(ours.values())))


def biases(config: Config) -> str:
    """The value of `bias`, from `attention_bias` and `mlp_bias`."""
    given = tuple(bool(config.take(key, kind=bool)) for key in ("attention_bias", "mlp_bias"))
    return {(False, False): "none", (True, False): "attention", (False, True): "feed_forward"}.get(
        given, "all"
    )


def write_biases(model: Model) -> dict[str, bool]:
    return {
        "attention_bias": model["bias"] in ("attention", "all"),
        "mlp_bias": model["bias"] in ("feed_forward", "all"),
    }


def sliding_layers(config: Config, width: int | None, sliding: Sequence[bool]) -> Sequence[bool]:
    """Whether each layer has the sliding window.

    Args:
        width: the window.
        sliding: whether each layer has it, where `layer_types` does not say.
    """
    kinds = config.take("layer_types", kind=(list, NONE))
    if kinds is not None:
        known = {"full_attention", "sliding_attention"} if width else {"full_attention"}
        if len(kinds) != len(sliding):
            config.problem("layer_types", f"{len(kinds)} of them for {len(sliding)} layers")
        if unknown := sorted({str(one) for one in kinds} - known):
            window = "" if width else " where no sliding_window is set, or no use_sliding_window"
            config.problem("layer_types", f"{', '.join(unknown)} cannot be imported{window}")
        sliding = [one == "sliding_attention" for one in kinds]
    return sliding


def but_every(config: Config, key: str, model: Model, first: int) -> list[bool]:
    """Whether each layer, numbered from `first`, is not one in so many as a key says.

    The key is not read beside `layer_types`.
    """
    if config.values.get("layer_types") is not None:
        config.taken.add(key)
        return [False] * model["num_layers"]
    turn = config.take(key)
    if turn < 1:
        config.problem(key, f"{turn} is not a number of layers")
    return [layer % max(turn, 1) > 0 for layer in range(first, model["num_layers"] + first)]


def windows(width: int | None, sliding: Sequence[bool]) -> int | list[int | None] | None:
    """The sliding window of all layers, or that of each."""
    pattern = [width if one else None for one in sliding]
    return pattern[0] if len(set(pattern)) == 1 else pattern


def in_turns(encodings: list[Any]) -> Any:
    """The encoding of a model, from that of each layer."""
    size = len(encodings)
    repeating = (encodings[:n] for n in range(1, size + 1) if (encodings[:n] * size)[:size] == encodings)
    pattern = next(repeating, [{"name": "none"}])  # without layers, which is refused later
    return {"name": "interleave", "pattern": pattern} if len(pattern) > 1 else pattern[0]


def of_layers(value: Any, model: Model) -> list[Any]:
    """The window or the encoding of each layer, from that of the model."""
    if isinstance(value, dict) and value["name"] == "interleave":
        value = value["pattern"]
    pattern = value if isinstance(value, list | tuple) else [value]
    return [pattern[layer % len(pattern)] for layer in range(model["num_layers"])]


def head_width(model: Model) -> int:
    return model.get("head_dim") or model["d_model"] // model["num_heads"]


def write_rope(
    model: Model,
    encoding: dict[str, Any],
    length: int,
    names: Sequence[str] = ("rope_theta", "partial_rotary_factor"),
) -> dict[str, Any]:
    """`rope_parameters` and the length they are for, from the options of the zoo's rope; and the keys of
    `transformers` 4, in which its base and its part have these names."""
    scaling, factor, base = encoding["scaling"], encoding["factor"], encoding["base"]
    width, part = head_width(model), encoding["partial"]
    rotated = round(part * width)
    if int(part * width) != rotated:  # `transformers` does not round
        part = (rotated + 0.5) / width
    given: dict[str, Any] = {"rope_type": "default", "partial_rotary_factor": part}
    if scaling == "ntk":
        base *= factor ** (rotated / (rotated - 2))
    elif scaling != "none":
        given |= {"rope_type": scaling, "factor": factor}
    own = [key for key in SCALINGS.get(scaling, ()) if key not in ("factor", ORIGINAL)]
    original = encoding["original_length"] or length
    given |= {key: encoding[key] for key in own if encoding[key] is not None}
    given |= {ORIGINAL: original} if own else {}
    longest = length if scaling == "none" else max(length, int(original * factor))
    given |= {"rope_theta": base}
    older = {key: value for key, value in zip(names, (base, part), strict=True) if key in OLDER}
    return {
        "rope_parameters": given, "max_position_embeddings": longest, **older, **_older_scaling(given)
    }  # fmt: skip


def _older_scaling(given: dict[str, Any]) -> dict[str, Any]:
    """The scaling of a section as `transformers` 4 has it, if any."""
    apart = "rope_theta", "partial_rotary_factor"
    scaling = {key: value for key, value in given.items() if key not in apart}
    return {} if given["rope_type"] == "default" else {"rope_scaling": scaling}


def _layers(model: Model) -> Iterator[tuple[Any, int | None]]:
    """The encoding and the window of each layer."""
    return zip(of_layers(model["encoding"], model), of_layers(model["window"], model), strict=True)


def layer_types(model: Model) -> tuple[int | None, list[str]]:
    """The window, if any layer has one, and the type of each layer."""
    widths = of_layers(model["window"], model)
    width = next((one for one in widths if one is not None), None)
    return width, [LAYER_TYPES[one is not None] for one in widths]


def write_ropes(
    model: Model, length: int, thetas: Mapping[str, str], scaled: Sequence[str]
) -> dict[str, Any]:
    """`rope_parameters` of each type of layers, and the length they are for; and as `ropes` reads them."""
    sections, longest = {}, length
    for encoding, window in _layers(model):
        written = write_rope(model, encoding, length)
        sections[LAYER_TYPES[window is not None]] = written["rope_parameters"]
        longest = max(longest, written["max_position_embeddings"])
    # A type without layers has the rope of the other, or a plain one where version 4 does not scale it.
    present = next(iter(sections.values()))
    plain = {key: present[key] for key in ("partial_rotary_factor", "rope_theta")} | {"rope_type": "default"}
    for kind in LAYER_TYPES:
        sections.setdefault(kind, present if kind in scaled else plain)
    scalings = {kind: _older_scaling(given) for kind, given in sections.items()}
    older = scalings[scaled[0]]
    if scalings != {kind: older if kind in scaled else {} for kind in sections}:
        older = {"rope_scaling": None}
    for kind, key in thetas.items():
        base = sections[kind]["rope_theta"]
        older[key] = base if older.get(key, base) == base else None
    return {"rope_parameters": sections, "max_position_embeddings": longest, **older}


# Conditions: what an architecture holds


def any_value(value: Any, model: Model) -> bool:
    return True


def four_widths(value: int, model: Model) -> bool:
    """Condition on `d_ff` where an architecture has no choice."""
    return value == 4 * model["d_model"]


def own_heads(value: int | None, model: Model) -> bool:
    """Condition on `head_dim` where an architecture has no choice."""
    return value in (None, model["d_model"] // model["num_heads"])


def one_width(pattern: Any, model: Model) -> bool:
    """Condition on `window` where an architecture has one width, for layers of its choice."""
    return len({*of_layers(pattern, model)} - {None}) <= 1


def root_of_integer(scale: float | None, model: Model) -> bool:
    """Condition on `attention_scale` where an architecture has the integer whose root it divides by."""
    return scale is None or math.isclose(round(scale**-2) or math.inf, scale**-2, rel_tol=1e-12)


def called(encoding: Any) -> str:
    """The name of an encoding, or those of several."""
    return "+".join(map(called, encoding)) if isinstance(encoding, list) else encoding["name"]


def only(name: str, **wanted: Iterable[Any]) -> Callable[[Model], str | None]:
    """A test for an encoding of this name, with one of the values wanted for each of these options."""

    def fault(model: Model) -> str | None:
        encoding = model["encoding"]
        if called(encoding) != name or isinstance(encoding, list):
            return f"encoding is {called(encoding)}"
        others = [
            f"{name} has {key} {encoding[key]}" for key, good in wanted.items() if encoding[key] not in good
        ]
        return ", ".join(others) or None

    return fault


ROTARY: dict[str, Any] = {
    "layout": ("half",), "scaling": EQUAL_SCALINGS, "proportion": (1.0,), "imaginary": (False,)
}  # fmt: skip
WHOLE_ROPE, PARTIAL_ROPE = only("rope", **ROTARY, partial=(1.0,)), only("rope", **ROTARY)
ROPE_OF_TYPE = only("rope", **ROTARY, partial=(1.0,), truncate=(True,))
"""In a section for a type of layers `transformers` does not read `truncate`."""


def rope_by_window(model: Model) -> str | None:
    """A test for one rope in all layers with a window, and one in all others."""
    if called(model["encoding"]) not in ("rope", "interleave"):
        return f"encoding is {called(model['encoding'])}"
    of_types: dict[bool, Any] = {}
    for encoding, window in _layers(model):
        fault = ROPE_OF_TYPE({"encoding": encoding})
        if fault or of_types.setdefault(window is None, encoding) != encoding:
            return fault or "its layers with a window, or those without, have several ropes"
    return None


def rope_in_windows(rope: Callable[[Model], str | None]) -> Callable[[Model], str | None]:
    """A test for one rope, of this test, in all layers with a window, and no positions in all others."""

    def fault(model: Model) -> str | None:
        tests, ropes = {True: rope, False: only("none")}, []
        for encoding, window in _layers(model):
            if found := tests[window is not None]({"encoding": encoding}):
                return f"{found} in layers with{'out' * (window is None)} a window"
            ropes += [encoding] if window is not None else []
        return None if ropes and ropes.count(ropes[0]) == len(ropes) else "its layers have not one rope"

    return fault


def fixed_alibi(model: Model) -> str | None:
    """A test for ALiBi with the slopes that published models have."""
    fault = only("alibi", learned=(False,))(model)
    heads = model["num_heads"]
    # The geometric slopes differ from the official ones where the number of heads is not a power of two.
    rule = None if fault else model["encoding"]["slopes"]
    if rule == "harmonic" or (rule == "geometric" and heads & (heads - 1)):
        return f"alibi has slopes {rule}"
    return fault
