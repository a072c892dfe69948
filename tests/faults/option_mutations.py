"""Small recipes with encodings whose options are chosen at random, right and wrong."""

import random
import typing

from zoo import registry

WHOLE = [0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 64, 100, 512, -1, 2**12, 2**45, 2**62, 1e2, 1e300]
REAL = [0.0, 0.25, 0.3, 0.5, 1.0, 2.0, 3.5, 10.0, 1e4, 1e-3, 1e-30, 1e30, 1e-300, 1e300, -0.5, -1.0, -1e30]
DEEPEST = 4  # wrappers in wrappers


def value_of(annotation, rng, depth):
    """A value of an option of this type; now and then one of another."""
    if rng.random() < 0.03:
        return rng.choice([None, "x", [], {}, True, [1.0], 0.5, 3])
    if registry.is_encoding(annotation):
        return encoding(rng, depth + 1)
    if annotation in (None, type(None)):
        return None
    if annotation is bool:
        return rng.random() < 0.5
    if annotation is int:
        return rng.choice(WHOLE)
    if annotation is float:
        return rng.choice(REAL)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return value_of(arguments[0], rng, depth)
    if origin is typing.Literal:
        return rng.choice(arguments)
    if origin is list:
        return [value_of(arguments[0], rng, depth) for _ in range(rng.choice([0, 1, 2, 2, 2, 4, 8]))]
    return value_of(rng.choice(arguments), rng, depth) if arguments else rng.choice(["x", 1])


def encoding(rng, depth=0):
    names = [
        name
        for name in registry.encodings.names()
        if depth < DEEPEST or not registry.encodings.describe(name).wrapping
    ]
    if rng.random() < 0.08:
        return [encoding(rng, depth + 1) for _ in range(rng.choice([1, 2, 2, 3]))]
    name = rng.choice(names)
    spec = {"name": name}
    for option in registry.encodings.describe(name).options:
        if option.default is registry.REQUIRED or rng.random() < 0.25:
            spec[option.name] = value_of(option.annotation, rng, depth)
    return spec


def small_recipe(seed):
    """A recipe as plain data; of a model that is built in milliseconds, where it can be built."""
    rng = random.Random(seed)
    heads = rng.choice([1, 2, 3, 4, 5])
    model = {
        "kind": rng.choice(["decoder", "decoder", "encoder"]), "encoding": encoding(rng), "num_heads": heads,
        "d_model": heads * rng.choice([1, 2, 3, 4, 6, 8, 8, 8, 16, 16]), "num_layers": rng.choice([1, 2, 3]),
        "norm": rng.choice(["layernorm", "rmsnorm"]), "activation": rng.choice(["gelu", "swiglu"]),
        "dropout": rng.choice([0.0, 0.5]), "tie_embeddings": rng.random() < 0.5,
        "window": rng.choice([None, None, None, 1, 5, 100, [5, None]]), "qk_norm": rng.random() < 0.3,
        "logit_scale": rng.choice(["none", "none", "log_n", "scalable_softmax", "adaptive", "temperature"]),
        "num_kv_heads": rng.choice([None, None, 1, heads]), "d_ff": rng.choice([None, None, 1, 24]),
        "kernel": rng.choice(["auto", "sdpa", "reference"]),
    }  # fmt: skip
    return {
        "name": "small",
        "seed": rng.choice([0, 1, 2**32 - 1]),
        "model": model,
        "data": {"name": "sample", "sequence_length": rng.choice([1, 2, 7, 16, 33]), "batch_size": 4},
        "optimizer": {"lr": 1e-3},
        "trainer": {"max_steps": 2, "accelerator": "cpu"},
    }
