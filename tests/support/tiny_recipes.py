"""The smallest recipes: one layer of width 16, a few steps."""

from zoo.recipe import resolve

MAX_INDEX = {
    "name": "tiny",
    "model": {"kind": "encoder", "encoding": "alibi", "d_model": 16, "num_layers": 1, "num_heads": 2},
    "data": {"name": "max_index", "sequence_length": 8, "batch_size": 4},
    "optimizer": {"lr": 1e-3, "warmup_steps": 2},
    # Not auto: what a test finds does not depend on the processor.
    "trainer": {
        "max_steps": 6, "accelerator": "cpu", "log_every_n_steps": 2, "limit_val_batches": 4,
        "precision": "32-true",
    },
    "compile": False,
    "checkpoint": {"every_n_steps": 4},
    "evaluate": {"samples": 16},
    "logging": ["csv"],
}  # fmt: skip
TEXT = {
    **MAX_INDEX,
    "name": "tiny_text",
    "model": {**MAX_INDEX["model"], "kind": "decoder"},
    # Small, so that a test can train past the end of an epoch.
    "data": {
        "name": "sample", "sequence_length": 16, "batch_size": 4, "vocab_size": 300,
        "documents": 12, "words": 60,
    },
    "evaluate": {"max_tokens": 256},
}  # fmt: skip


def tiny_mapping(data, kind="decoder", encoding="none", **sections):
    """A recipe as plain data: `tiny_mapping({"name": "copy", "sequence_length": 12}, logging=[])`."""
    model = {**MAX_INDEX["model"], "kind": kind, "encoding": encoding}
    recipe = {"name": "tiny", "model": model, "data": {"batch_size": 4, **data}, "optimizer": {"lr": 1e-3}}
    return {**recipe, "trainer": {"max_steps": 1}, **sections}


def tiny(data, *sets, **more):
    """A resolved recipe: `tiny({"name": "copy", "sequence_length": 12}, "seed=1")`."""
    return resolve(tiny_mapping(data, **more), sets)
