"""Recipes small enough to train in a test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from zoo.recipe import resolve

ROOT = Path(__file__).parents[2]

MAX_INDEX = {
    "name": "tiny",
    "model": {"kind": "encoder", "encoding": "alibi", "d_model": 16, "num_layers": 1, "num_heads": 2},
    "data": {"name": "max_index", "sequence_length": 8, "batch_size": 4},
    "optimizer": {"lr": 1e-3, "warmup_steps": 2},
    "trainer": {"max_steps": 6, "accelerator": "cpu", "log_every_n_steps": 2, "limit_val_batches": 4},
    "checkpoint": {"every_n_steps": 4},
    "evaluate": {"samples": 16},
    "logging": ["csv"],
}
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


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One token cache for all tests of a session."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def mapping(cache):
    """A recipe as plain data: `max_index` or `text`, or `masked` for an encoder on text."""

    def mapping(kind="max_index"):
        if kind == "max_index":
            return MAX_INDEX
        made = {**TEXT, "data": {**TEXT["data"], "cache": cache}}
        return {**made, "model": {**TEXT["model"], "kind": "encoder"}} if kind == "masked" else made

    return mapping


@pytest.fixture
def recipe(mapping):
    """A resolved recipe with changes: `recipe("text", "seed=1")`."""

    def recipe(kind="max_index", *sets):
        return resolve(mapping(kind), sets)

    return recipe


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def zoo_command(here, mapping):
    """Run `python -m zoo ...` in the working directory, where NAME.yaml holds the recipe of each kind."""
    for kind in ("max_index", "text", "masked"):
        made = {key: value for key, value in mapping(kind).items() if key != "name"}
        (here / f"{kind}.yaml").write_text(yaml.safe_dump(made, sort_keys=False))

    def run(*arguments, launcher=("-m", "zoo")):
        environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "LOCAL_RANK")}
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, *launcher, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)

    return run
