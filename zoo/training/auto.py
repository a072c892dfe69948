"""Precision and compilation that `auto` in a recipe stands for on the device at hand.

Decided once, when a run begins: the recipe in its folder holds the choice, and a resumed run keeps it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import Any

import torch

from zoo.recipe import Recipe

NARROWEST = 64
"""Width from which a model is trained in bf16: narrower ones gain little."""
STEPS_TO_COMPILE = {"cpu": 5000, "cuda": 1000}
"""Steps from which on compiling is repaid: on a CPU it takes about 20 s and saves 2 to 6 % of a step."""


def choose_auto(recipe: Recipe, stored: dict[str, Any] | None = None) -> Recipe:
    """The recipe with `trainer.precision` and `compile` chosen where they are `auto`.

    precision: bf16-mixed where the processor multiplies bf16 natively and the model is not narrower than
    `NARROWEST`, else 32-true. compile: true from `STEPS_TO_COMPILE` steps on where a compiler is installed,
    and neither the model nor its sequences are in parts.

    Args:
        stored: the recipe of the run that is resumed, which decides.
    """
    device = _device(recipe.trainer.accelerator)
    stored = stored or {}
    precision, compiled = recipe.trainer.precision, recipe.compile
    if precision == "auto":
        precision = (stored.get("trainer") or {}).get("precision") or _precision(recipe, device)
    if compiled == "auto":
        compiled = stored.get("compile")
        if not isinstance(compiled, bool):
            compiled = _compiles(recipe, device)
    trainer = recipe.trainer.model_copy(update={"precision": precision})
    return recipe.model_copy(update={"trainer": trainer, "compile": compiled})


def _device(accelerator: str) -> str:
    """The kind of device that Lightning takes."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return "cuda"
    return "cpu" if accelerator in ("auto", "cpu") and not torch.backends.mps.is_available() else "other"


def _precision(recipe: Recipe, device: str) -> str:
    if recipe.model.d_model < NARROWEST:
        return "32-true"
    if device == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = device == "cpu" and (
            torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        )
    return "bf16-mixed" if native else "32-true"


def _compiles(recipe: Recipe, device: str) -> bool:
    trainer = recipe.trainer
    parts = trainer.strategy == "fsdp" or trainer.context_parallel > 1
    if parts or trainer.max_steps < STEPS_TO_COMPILE.get(device, 2**63):
        return False
    if device == "cuda":
        return importlib.util.find_spec("triton") is not None
    return shutil.which(os.environ.get("CXX", "g++")) is not None
